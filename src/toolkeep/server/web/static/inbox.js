// Keys, notices and the selection of the approvals page. What counts is decided by the server.
"use strict";

const WAIT_MS = 600; // no key answers a question that appeared under the person's fingers
let shownAt = performance.now();

const panel = () => document.getElementById("question");
const find = (selector) => panel()?.querySelector(selector);

// --- the question that is shown ----------------------------------------------------------------------------------

document.addEventListener("htmx:after:swap", () => {
  restorePicked();
  nameTicked();
  const current = document.getElementById("current")?.value ?? "";
  if (!current || current === shown) return;
  shownAt = performance.now();
  shown = current;
  history.replaceState(null, "", `/ui/approvals/${current}`); // to load it anew
});

let shown = document.getElementById("current")?.value ?? "";
// On a phone the list stands above the call that was chosen in it.
if (location.pathname.startsWith("/ui/approvals/") && matchMedia("(max-width: 52rem)").matches) panel()?.scrollIntoView();

// --- several calls -----------------------------------------------------------------------------------------------

// The selection outlives the list, and in this tab the page: each call that is looked at is a page of its own.
const PICKED = "toolkeep.picked";
const picks = () => [...document.querySelectorAll("#picks [name=picked]")];

function keepPicked() {
  const picked = picks().filter((box) => box.checked).map((box) => box.value);
  sessionStorage.setItem(PICKED, JSON.stringify(picked));
}

function restorePicked() {
  const picked = JSON.parse(sessionStorage.getItem(PICKED) ?? "[]");
  for (const box of picks()) box.checked = picked.includes(box.value);
  keepPicked(); // those that wait no longer are forgotten
}

// The button says what it does: what has no box to tick goes on waiting.
function nameTicked() {
  const button = find("[value=ticked]");
  if (!button) return;
  const [all, ticked] = ["", ":checked"].map((which) => button.form.querySelectorAll(`[name=ticked]${which}`).length);
  const left = Number(button.dataset.waiting) - all;
  const rest = left ? `; ${left} ${left === 1 ? "waits" : "wait"}` : "";
  button.textContent = `Approve ${ticked}, deny ${all - ticked}${rest}`;
}

document.addEventListener("change", ({ target }) => {
  if (target.name === "picked") keepPicked();
  if (target.name === "ticked") nameTicked();
});
restorePicked();
nameTicked();

// --- keys --------------------------------------------------------------------------------------------------------

const keysDialog = document.getElementById("keys");
const useKeys = document.getElementById("use-keys");
useKeys.checked = localStorage.getItem("toolkeep.keys") !== "off";
useKeys.addEventListener("change", () => localStorage.setItem("toolkeep.keys", useKeys.checked ? "on" : "off"));
document.getElementById("show-keys").addEventListener("click", () => keysDialog.showModal());

const isTyping = (element) => element.closest?.("input:not([type=checkbox]), textarea, select, [contenteditable]");

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat || document.querySelector("dialog[open]")) return;
  if (event.key === "Enter" && event.target.id === "reason" && find("[value=deny]")) {
    event.preventDefault();
    find("[value=deny]").click();
  }
  if (isTyping(event.target)) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (event.key === "?") keysDialog.showModal();
  else if (useKeys.checked && KEYS[event.key]) KEYS[event.key]();
  else return;
  event.preventDefault();
});

const KEYS = {
  j: () => step(1),
  k: () => step(-1),
  a: approve,
  d: () => find("#reason")?.focus(),
  x: () => document.querySelector(".waiting-item:has([aria-current]) [name=picked]")?.click(),
};

function step(by) {
  const links = [...document.querySelectorAll(".waiting-list a")];
  const at = links.findIndex((link) => link.hasAttribute("aria-current"));
  links[at < 0 ? 0 : at + by]?.click();
}

function approve() {
  const button = find("[value='approve:once'], [value=all], [value=ticked]");
  if (!button) return;
  const isAsked = find(".danger-high, .danger-critical") || button.value !== "approve:once";
  // What is dangerous is not approved by one key.
  if (isAsked) (find("#typed") ?? button).focus();
  else if (performance.now() - shownAt > WAIT_MS) button.click();
}

// --- notices of the browser --------------------------------------------------------------------------------------

const notify = document.getElementById("notify");

function nameNotify() {
  const isOn = localStorage.getItem("toolkeep.notify") === "on" && Notification.permission === "granted";
  notify.setAttribute("aria-pressed", String(isOn));
  notify.textContent = Notification.permission === "denied" ? "The browser forbids notifications" : isOn ? "Notifying" : "Notify me";
  notify.disabled = Notification.permission === "denied";
}

if ("Notification" in window) {
  nameNotify();
  notify.addEventListener("click", async () => {
    const isOn = notify.getAttribute("aria-pressed") === "true";
    if (!isOn && Notification.permission !== "granted") await Notification.requestPermission();
    localStorage.setItem("toolkeep.notify", isOn ? "off" : "on");
    nameNotify();
  });
} else notify.remove();
