// Rows of a form made from a schema: added from a template, whose index is "-", and removed.
"use strict";

const asHex = (text) => [...new TextEncoder().encode(text)].map((byte) => byte.toString(16).padStart(2, "0")).join("");

document.addEventListener("click", (event) => {
  const add = event.target.closest("[data-add-row]");
  const remove = event.target.closest("[data-remove-row]");
  if (add) addRow(add);
  else if (remove) removeRow(remove);
});

function addRow(button) {
  const group = button.closest("fieldset");
  const list = group.querySelector(":scope > .form-rows");
  const place = button.dataset.addRow;
  const used = [...list.children].map((row) => Number(row.dataset.at.slice(place.length + 1)));
  const index = Math.max(-1, ...used) + 1;
  const made = group.querySelector(":scope > template").content.cloneNode(true);
  rename(made, `${place}/-`, `${place}/${index}`);
  list.append(made);
  const row = list.lastElementChild;
  row.querySelector("input, select, textarea, button")?.focus();
  announce(`Row ${list.children.length} added`);
}

function rename(root, old, now) {
  const swaps = { id: "field-", for: "field-", "aria-describedby": "field-", name: ["at:", "key:"], "data-at": "", "data-add-row": "" };
  for (const element of root.querySelectorAll("*")) {
    for (const [attribute, prefixes] of Object.entries(swaps)) {
      const held = element.getAttribute(attribute);
      for (const prefix of held === null ? [] : [prefixes].flat()) {
        const isHex = prefix === "field-";
        const from = prefix + (isHex ? asHex(old) : old);
        if (held.startsWith(from)) element.setAttribute(attribute, prefix + (isHex ? asHex(now) : now) + held.slice(from.length));
      }
    }
    if (element.tagName === "TEMPLATE") rename(element.content, old, now);
  }
}

function removeRow(button) {
  const row = button.closest(".form-row");
  const list = row.parentElement;
  const next = row.nextElementSibling ?? row.previousElementSibling;
  row.remove();
  (next?.querySelector("input, select, textarea") ?? list.parentElement.querySelector("[data-add-row]")).focus();
  announce(`Row removed; ${list.children.length} left`);
}
