// The selection of tools. It is kept while the list is filtered or loaded anew.
"use strict";

const bulk = document.getElementById("bulk");
const chosen = new Set();

function showChosen() {
  if (!bulk) return;
  for (const box of document.querySelectorAll("input[form=bulk]")) box.checked = chosen.has(box.value);
  // A tool that a filter hides stays chosen, and is sent too.
  bulk.querySelectorAll("[data-hidden-pick]").forEach((held) => held.remove());
  const shown = new Set([...document.querySelectorAll("input[form=bulk]")].map((box) => box.value));
  for (const name of chosen) {
    if (shown.has(name)) continue;
    const held = document.createElement("input");
    Object.assign(held, { type: "hidden", name: "picked", value: name });
    held.dataset.hiddenPick = "";
    bulk.append(held);
  }
  bulk.querySelector("[data-picked]").textContent = chosen.size;
  bulk.classList.toggle("is-open", chosen.size > 0);
  bulk.classList.toggle("has-danger", document.getElementById("bulk-action").value === "danger");
}

document.addEventListener("change", (event) => {
  if (event.target.matches("input[form=bulk]")) {
    if (event.target.checked) chosen.add(event.target.value);
    else chosen.delete(event.target.value);
  }
  showChosen();
});

document.addEventListener("click", (event) => {
  if (event.target.closest("[data-unpick]")) chosen.clear();
  else if (event.target.closest("[data-close-bulk]")) {
    document.getElementById("bulk-preview").replaceChildren();
    document.querySelector("input[form=bulk]:checked, #search")?.focus();
  } else return;
  showChosen();
});

document.addEventListener("htmx:after:swap", () => {
  if (document.querySelector("#bulk-preview [id=bulk-title]")?.textContent.startsWith("Done")) chosen.clear();
  showChosen();
});

showChosen();
