// Named filters of the audit page, kept by this browser. Filters are in the address: to share them, send that.
"use strict";

const STORED = "toolkeep.views";
const MOST = 20; // they stand in one row or two
const box = document.getElementById("views");
const list = box.querySelector("ul");
const named = document.getElementById("view-name");

function stored() {
  try {
    const found = JSON.parse(localStorage.getItem(STORED) ?? "[]");
    return found.filter((view) => typeof view.name === "string" && typeof view.query === "string");
  } catch {
    return []; // closed, or written by something else
  }
}

function store(views) {
  localStorage.setItem(STORED, JSON.stringify(views.slice(-MOST)));
  show();
}

function show() {
  list.replaceChildren(...stored().map(row));
}

function row(view) {
  const item = document.createElement("li");
  const link = Object.assign(document.createElement("a"), { className: "chip plain", textContent: view.name });
  link.href = `/ui/audit?${view.query}`;
  const forget = Object.assign(document.createElement("button"), { className: "button quiet small", textContent: "×" });
  forget.setAttribute("aria-label", `Forget the view ${view.name}`);
  forget.addEventListener("click", () => {
    store(stored().filter((one) => one.name !== view.name));
    named.focus();
  });
  item.append(link, forget);
  return item;
}

box.querySelector("form").addEventListener("submit", (event) => {
  event.preventDefault();
  const name = named.value.trim();
  if (!name) return;
  store([...stored().filter((one) => one.name !== name), { name, query: location.search.slice(1) }]);
  named.value = "";
});
// There is something to name once there is a filter.
const saving = box.querySelector("form");
const offer = () => { saving.hidden = !location.search.slice(1); };
document.addEventListener("htmx:config:request", () => setTimeout(offer)); // the address follows first
offer();
box.hidden = false;
show();
