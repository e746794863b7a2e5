// Named filters of the audit page, kept by this browser. Filters are in the address: to share them, send that.
"use strict";

const STORED = "toolkeep.views";
const MOST = 20; // they stand in one row or two
const list = document.getElementById("views");
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
    (list.querySelector("a") ?? document.getElementById("by-text")).focus();
  });
  item.append(link, forget);
  return item;
}

const dialog = document.getElementById("view");
const save = document.getElementById("save-view");
save.addEventListener("click", () => {
  dialog.returnValue = named.value = "";
  dialog.showModal();
});
dialog.querySelector("[type=button]").addEventListener("click", () => dialog.close());
dialog.addEventListener("close", () => {
  const name = named.value.trim();
  if (dialog.returnValue !== "save" || !name) return;
  store([...stored().filter((one) => one.name !== name), { name, query: location.search.slice(1) }]);
});
// There is something to name once there is a filter.
const offer = () => { save.disabled = !location.search.slice(1); };
document.addEventListener("htmx:config:request", () => setTimeout(offer)); // the address follows first
offer();
show();

// A filter for an exact name counts once it is one that is known, or was left or entered: "read" is no tool, and the
// list would be empty while somebody types "read_file".
for (const input of document.querySelectorAll("[data-exact]")) {
  let applied = input.value;
  const apply = () => {
    if (input.value === applied) return;
    applied = input.value;
    htmx.trigger(input.form, "exact");
  };
  input.addEventListener("input", () => {
    if (!input.value || [...(input.list?.options ?? [])].some((option) => option.value === input.value)) apply();
  });
  input.addEventListener("blur", apply);
  input.addEventListener("keydown", ({ key }) => key === "Enter" && apply());
}
