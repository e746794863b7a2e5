// What the page does beside asking the server for HTML: the token of this tab, times, copies, locks, live news,
// and the JSON editor. Nothing here decides anything; what a person may do is decided by the server.
"use strict";

const body = document.body;
const announce = (text) => {
  const place = document.getElementById("announce");
  place.textContent = "";
  requestAnimationFrame(() => (place.textContent = text));
};

// --- the token of this tab ---------------------------------------------------------------------------------------

let opening = null;

async function openTab() {
  const key = localStorage.getItem("toolkeep.key") ?? "";
  const answer = await fetch("/ui/tab", { method: "POST", headers: { "X-Toolkeep-Key": key } });
  if (!answer.ok) {
    location.href = "/ui/sign-in";
    throw new Error("this browser does not hold the key of the session");
  }
  const token = await answer.text();
  sessionStorage.setItem("toolkeep.tab", token);
  return token;
}

async function tabToken() {
  const held = sessionStorage.getItem("toolkeep.tab");
  if (held) return held;
  opening ??= openTab().finally(() => (opening = null));
  return opening;
}

async function change(url, options) {
  options.headers["X-Toolkeep-Tab"] = await tabToken();
  const answer = await fetch(url, options);
  if (answer.headers.get("X-Toolkeep-Tab") !== "unknown") return answer;
  sessionStorage.removeItem("toolkeep.tab"); // the server was started anew
  options.headers["X-Toolkeep-Tab"] = await tabToken();
  return fetch(url, options);
}

document.addEventListener("htmx:config:request", (event) => {
  const context = event.detail.ctx;
  if (context.request.method !== "GET") context.fetch = change;
});

// --- after anything was put into the page ------------------------------------------------------------------------

// Times are those of the viewer's zone and locale, in tables and in charts.
const zoned = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const ofToday = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });
const ofThisYear = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric", hour: "numeric", minute: "2-digit", second: "2-digit" });
const clockTime = new Intl.DateTimeFormat(undefined, { timeStyle: "short" });
const calendarDay = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric" });
const numeral = new Intl.NumberFormat("en"); // as the server writes numbers
const relative = new Intl.RelativeTimeFormat(undefined, { numeric: "auto", style: "narrow" });

function showTimes(root) {
  for (const element of root.querySelectorAll("time[datetime]:not([data-shown])")) {
    const moment = new Date(element.dateTime);
    if (Number.isNaN(moment.getTime())) continue;
    element.title = `${zoned.format(moment)}, ${moment.toISOString()}`;
    element.textContent = "relative" in element.dataset ? near(moment) : asFarAsNeeded(moment, element.parentElement.dataset.to === "minute");
    element.dataset.shown = "";
  }
}

let today = new Date().toDateString();

// The time of today, the day and time of this year, else the date too. The title has all of it.
function asFarAsNeeded(moment, toMinute = false) {
  const isToday = moment.toDateString() === today;
  if (toMinute) return `${isToday ? "" : `${calendarDay.format(moment)}, `}${clockTime.format(moment)}`;
  if (isToday) return ofToday.format(moment);
  return (moment.getFullYear() === new Date().getFullYear() ? ofThisYear : zoned).format(moment);
}

function near(moment) {
  const seconds = Math.round((moment - Date.now()) / 1000);
  const units = [["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]];
  const [unit, length] = units.find(([, length]) => Math.abs(seconds) >= length) ?? units[3];
  return relative.format(Math.trunc(seconds / length), unit);
}

// The time of a tick, or its day where a day begins.
function shortTime(seconds) {
  const moment = new Date(seconds * 1000);
  return (moment.getHours() || moment.getMinutes() ? clockTime : calendarDay).format(moment);
}

setInterval(() => {
  if (today !== new Date().toDateString()) {
    today = new Date().toDateString();
    for (const element of document.querySelectorAll("time[data-shown]")) delete element.dataset.shown;
    showTimes(document);
  }
  for (const element of document.querySelectorAll("time[data-relative]")) element.textContent = near(new Date(element.dateTime));
}, 1000);

function settle(root) {
  showTimes(root);
  root.querySelectorAll("input[data-zoned]").forEach(showZoned);
  if (window.drawAnew) drawAnew(root);
  for (const area of root.querySelectorAll("textarea:is([data-json], [data-cedar]):not([data-edited])")) edit(area);
  for (const slot of root.querySelectorAll("[data-error-for]")) {
    const field = document.getElementById(slot.dataset.errorFor);
    if (field?.matches("input, select, textarea")) field.setAttribute("aria-invalid", String(slot.textContent.trim() !== "" && slot.checkVisibility()));
  }
  // Each once: what is put into another part of the page later takes nobody's focus.
  const first = root.querySelector("[data-focus]");
  if (first) first.focus();
  first?.closest(".closable")?.scrollIntoView({ block: "nearest" });
  first?.removeAttribute("data-focus");
  for (const told of root.querySelectorAll("[data-announce]")) {
    announce(told.dataset.announce);
    told.removeAttribute("data-announce");
  }
}

let focused = "";
document.addEventListener("htmx:before:swap", (event) => {
  focused = document.activeElement?.id ?? "";
  const { ctx } = event.detail;
  // What was asked for by something that is gone would replace what came in its place.
  if (ctx.request.method === "GET" && !ctx.sourceElement.isConnected) event.preventDefault();
  // An error of ours names its place. One of a proxy would replace what the person sees and typed.
  if (ctx.response.status < 400 || ctx.hx.retarget) return;
  event.preventDefault();
  sayUnanswered(ctx);
});

document.addEventListener("htmx:after:swap", ({ detail }) => {
  begin(detail.ctx);
  // A refusal of what nobody clicked, as of a check while typing, takes nobody's focus.
  if (!/click|submit/.test(detail.ctx.sourceEvent?.type)) document.querySelector("#messages [data-focus]")?.removeAttribute("data-focus");
  settle(document);
  // What had the focus and was replaced has it again.
  if (focused && document.activeElement === body) document.getElementById(focused)?.focus({ preventScroll: true });
  showWaiting();
});

// What fills a card that was closed begins at its heading, unless it has a button for what comes next.
function begin({ sourceElement, target }) {
  const card = target.closest?.(".closable");
  if (!card || card.contains(sourceElement) || card.querySelector("button[data-focus]")) return;
  card.querySelector("[data-focus]")?.removeAttribute("data-focus");
  card.querySelector("h2").dataset.focus = "";
}

// The bar of long work is for eyes; others are told. What a person did not begin is not worth a word.
const WORKING = "Working";
const slow = new WeakMap();
document.addEventListener("htmx:before:request", ({ detail: { ctx } }) => {
  if (/click|submit|input|change/.test(ctx.sourceEvent?.type)) slow.set(ctx, setTimeout(() => announce(WORKING), 1000));
});
document.addEventListener("htmx:finally:request", ({ detail: { ctx } }) => {
  clearTimeout(slow.get(ctx));
  if (document.getElementById("announce").textContent === WORKING) announce("Done");
});

// What is typed into a filter is sent while it is typed. Sent again when the field is left, the list would be replaced
// under the very click that leaves it.
document.addEventListener(
  "change",
  (event) => {
    if (event.target.matches(".filters input")) event.stopPropagation();
  },
  true,
);

// --- one listener for clicks -------------------------------------------------------------------------------------

document.addEventListener("click", (event) => {
  for (const open of document.querySelectorAll("#status details[open]")) if (!open.contains(event.target)) open.open = false;
});

document.addEventListener("click", async (event) => {
  const button = event.target.closest("button, [role=tab]");
  if (!button) return;
  if (button.dataset.copy) await copy(button);
  else if ("lock" in button.dataset) showLock(button);
  else if (button.getAttribute("role") === "tab") selectTab(button);
  else if (button.id === "theme") nextTheme(button);
  else if ("why" in button.dataset) showWhy(button);
  else if ("line" in button.dataset) (await import(body.dataset.editor)).goTo(button);
  else if ("dismissStart" in button.dataset) dismissStart();
  else if ("close" in button.dataset) {
    const card = button.closest(".closable");
    card.querySelector("[role=status]").replaceChildren();
    document.querySelector(`[aria-controls=${card.id}]`).focus();
  }
});

async function copy(button) {
  const text = document.querySelector(button.dataset.copy).textContent;
  const label = button.querySelector(".label");
  button.dataset.label ??= label.textContent;
  try {
    await navigator.clipboard.writeText(text);
    label.textContent = "Copied";
    announce("Copied");
  } catch {
    label.textContent = "Not allowed";
  }
  setTimeout(() => (label.textContent = button.dataset.label), 1500);
}

function showLock(button) {
  const dialog = document.getElementById("lock");
  const { feature, tier, needed } = button.dataset;
  const said = { feature, tier: tier.replaceAll("_", " "), needed: needed.replaceAll("_", " "), key: needed };
  for (const [slot, text] of Object.entries(said)) dialog.querySelector(`[data-slot=${slot}]`).textContent = text;
  dialog.showModal();
}

// The first steps, as this browser's choice: the page of their own shows them still.
function dismissStart() {
  try {
    localStorage.setItem("toolkeep.start", "off");
  } catch {
    // Storage is closed: the choice counts for this page.
  }
  document.getElementById("start").remove();
  document.getElementById("content").focus();
  announce("First steps hidden");
}

// One of several panels, chosen by a list.
document.addEventListener("change", ({ target }) => {
  if (!target.dataset.shows) return;
  for (const panel of document.querySelectorAll(`[data-panel="${target.dataset.shows}"]`)) panel.hidden = panel.dataset.value !== target.value;
});

// A replay is about the text as it was then.
document.getElementById("policy-form")?.addEventListener("input", () => {
  htmx.trigger("#replay", "htmx:abort");
  document.getElementById("replayed").replaceChildren();
});

// A decision about an agent and a tool.
function showWhy(button) {
  const dialog = document.getElementById("why");
  const { agent, tool, why: word, grants = "", depends, add = "" } = button.dataset;
  document.getElementById("why-title").textContent = `${agent} and ${tool}: ${word}`;
  document.getElementById("why-text").textContent = reasonOf(button);
  document.getElementById("why-grants").hidden = !grants;
  document.querySelector("#why-grants code").textContent = grants;
  document.getElementById("why-depends").textContent = depends
    ? `The arguments may change it: ${depends} ${depends.includes(",") ? "read" : "reads"} them.`
    : "";
  document.getElementById("why-add").hidden = !add;
  document.getElementById("why-line").textContent = add;
  document.getElementById("why-link").href = `/ui/policies?${new URLSearchParams({ agent, tool })}`;
  dialog.showModal();
}

const reasonOf = ({ title }) => `${title[0].toUpperCase()}${title.slice(1)}.`;

for (const type of ["mouseover", "focusin"])
  document.addEventListener(type, ({ target }) => {
    const cell = target.closest?.(".matrix [data-why]");
    if (cell) document.getElementById("pointed").textContent = `${cell.dataset.agent}, ${cell.dataset.tool}: ${cell.dataset.why}. ${reasonOf(cell)}`;
  });

document.addEventListener("htmx:confirm", (event) => {
  event.preventDefault();
  const { ctx, issueRequest, dropRequest } = event.detail;
  const dialog = document.getElementById("sure");
  document.getElementById("sure-title").textContent = ctx.confirm;
  dialog.returnValue = "";
  dialog.addEventListener("close", () => (dialog.returnValue === "yes" ? issueRequest() : dropRequest()), { once: true });
  dialog.showModal();
});

function selectTab(tab) {
  for (const other of tab.parentElement.querySelectorAll("[role=tab]")) {
    const isChosen = other === tab;
    other.setAttribute("aria-selected", String(isChosen));
    other.tabIndex = isChosen ? 0 : -1;
    const panel = document.getElementById(other.getAttribute("aria-controls"));
    panel.hidden = !isChosen;
    for (const area of isChosen ? panel.querySelectorAll("[data-json-later]:not([data-edited])") : []) edit(area);
  }
}

document.addEventListener("keydown", (event) => {
  const tab = event.target.closest?.("[role=tab]");
  if (!tab || !["ArrowLeft", "ArrowRight", "Home", "End"].includes(event.key)) return;
  const tabs = [...tab.parentElement.querySelectorAll("[role=tab]")];
  const at = tabs.indexOf(tab);
  const next = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: tabs.length - 1 }[event.key];
  const chosen = tabs[(next + tabs.length) % tabs.length];
  selectTab(chosen);
  chosen.focus();
  event.preventDefault();
});

const THEMES = ["system", "light", "dark"];

function nextTheme(button) {
  const root = document.documentElement;
  const next = THEMES[(THEMES.indexOf(root.dataset.theme ?? "system") + 1) % THEMES.length];
  if (next === "system") delete root.dataset.theme;
  else root.dataset.theme = next;
  try {
    localStorage.setItem("toolkeep.theme", next);
  } catch {
    // Storage is closed: the choice counts for this page.
  }
  nameTheme(button, next);
  announce(button.title);
  if (window.redraw) redraw();
}

function nameTheme(button, theme) {
  button.dataset.theme = theme;
  button.title = `Theme: ${theme === "system" ? "as the system" : theme}`;
  button.setAttribute("aria-label", button.title);
}

// What a script did to a form counts as if a person had.
const changed = (element) => element.closest("form")?.dispatchEvent(new Event("change", { bubbles: true }));

// --- live --------------------------------------------------------------------------------------------------------

const NEWS = ["approvals", "calls"];
const lost = document.getElementById("lost");
let news = null;
let missed = 0;

function listen() {
  // A browser has few connections to one server: a tab that nobody looks at gives its own back.
  // One that shall notify goes on.
  if (document.hidden && !notifies()) {
    news?.close();
    news = null;
  } else if (!news) {
    news = new EventSource("/ui/events");
    for (const name of NEWS) news.addEventListener(name, () => htmx.trigger(body, name));
    news.addEventListener("open", heard);
    news.addEventListener("error", unheard);
  }
}

const notifies = () =>
  location.pathname.startsWith("/ui/approvals") &&
  localStorage.getItem("toolkeep.notify") === "on" &&
  window.Notification?.permission === "granted";

let waiting = -1;
const title = document.title;

function showWaiting() {
  const badge = document.querySelector("#waiting [data-number]");
  if (!badge) return;
  const now = Number(badge.dataset.number);
  document.title = now ? `(${now}) ${title}` : title;
  // No name of an agent or tool: it would be shown outside the page, where nothing is escaped.
  if (waiting >= 0 && now > waiting && document.hidden && notifies()) {
    const notice = new Notification("toolkeep", { body: now === 1 ? "A call waits for approval" : `${now} calls wait for approval`, tag: "toolkeep" });
    notice.onclick = showInbox;
  }
  waiting = now;
}

// Browsers do not all show the tab by themselves. What a person has begun to answer stays.
function showInbox() {
  window.focus();
  if (!document.querySelector("#question .decide")) location.href = "/ui/approvals";
}

const lookAnew = () => NEWS.forEach((name) => htmx.trigger(body, name));

function heard() {
  lookAnew(); // for what happened while nobody listened
  missed = 0;
  lost.hidden = true;
  sayStream("live", "Live");
}

function unheard() {
  if (news?.readyState === EventSource.CLOSED) sayLost("You are signed out, or too many tabs are open.");
  else if (++missed > 1) sayLost("The server does not answer."); // the first may be a proxy that ends long answers
  else sayStream("wait", "Connecting");
}

function sayLost(what) {
  lost.querySelector("strong").textContent = what;
  lost.hidden = false;
  sayStream("lost", "Not connected");
}

function sayStream(state, words) {
  const line = document.getElementById("stream");
  if (!line) return;
  line.dataset.state = state;
  line.querySelector("span").textContent = words;
}

document.addEventListener("htmx:error", (event) => {
  const { ctx, error } = event.detail;
  if (error?.name === "AbortError") return; // another request took its place
  sayUnanswered(ctx);
});

function sayUnanswered(ctx) {
  const isChange = ctx && ctx.request?.method !== "GET";
  sayLost(isChange ? "The server did not answer: it may not have heard you." : "The server does not answer.");
}

document.addEventListener("visibilitychange", () => {
  listen();
  if (!document.hidden) lookAnew();
});

// --- the JSON editor ---------------------------------------------------------------------------------------------

async function edit(area) {
  area.dataset.edited = "";
  try {
    await (await import(body.dataset.editor)).edit(area, body.dataset.editorLibrary);
  } catch {
    // the text field does as well
  }
}

// --- times in the viewer's zone ------------------------------------------------------------------------------------

// A field of a time is in the viewer's zone; the hidden one after it has what is sent, with its offset. Filters have it in UTC,
// so that an address means the same calls everywhere.
const utc = (time) => time.toISOString().replace(/\.\d+/, "");
const local = (time) => utc(new Date(time - time.getTimezoneOffset() * 60000)).slice(0, -1);

function withOffset(time) {
  const minutes = -time.getTimezoneOffset();
  const [hour, minute] = [Math.abs(minutes) / 60, Math.abs(minutes) % 60].map((part) => String(Math.trunc(part)).padStart(2, "0"));
  return `${local(time)}${minutes < 0 ? "-" : "+"}${hour}:${minute}`;
}

function showZoned(input) {
  const { value } = input.nextElementSibling;
  if (value && !input.value) input.value = local(new Date(value)).slice(0, input.step ? 19 : 16);
  saySent(input);
}

// Where clocks are put back, an hour is there twice: only the offset tells which one is sent.
function saySent(input) {
  const sent = document.getElementById(`${input.id}-sent`);
  if (sent) sent.textContent = input.nextElementSibling.value;
}

function takeZoned({ target: input, type }) {
  if (!input.matches?.("input[data-zoned]")) return;
  const time = new Date(input.value);
  input.nextElementSibling.value = !input.value ? "" : input.dataset.zoned === "utc" ? utc(time) : withOffset(time);
  saySent(input);
  if (type === "change") changed(input);
}
for (const type of ["input", "change"]) document.addEventListener(type, takeZoned, true); // before the form is sent

// --- begin -------------------------------------------------------------------------------------------------------

if (document.documentElement.dataset.start === "off" && location.pathname === "/ui/") document.getElementById("start")?.remove();
settle(document);
document.addEventListener("DOMContentLoaded", listen); // htmx is there then
const themeButton = document.getElementById("theme");
if (themeButton) nameTheme(themeButton, document.documentElement.dataset.theme ?? "system");

// --- filters in the address ----------------------------------------------------------------------------------------

// So that Back, reloading and a copied address show the same calls. Each filter is a step back; letters of one are not.
let shownQuery = location.search;
let typedInto = "";
document.addEventListener("htmx:config:request", (event) => {
  const form = event.target.closest?.("form[data-in-url]");
  if (!form) return;
  const query = new URLSearchParams([...new FormData(form)].filter(([, value]) => value)).toString();
  const address = query ? `${form.action}?${query}` : form.action;
  const field = document.activeElement?.matches(".typed") ? document.activeElement.name : "";
  if (address === location.href) return;
  if (field && field === typedInto) history.replaceState(history.state, "", address);
  else history.pushState(null, "", address);
  [typedInto, shownQuery] = [field, location.search];
});
addEventListener("popstate", () => {
  if (document.querySelector("form[data-in-url]") && location.search !== shownQuery) location.reload();
});
