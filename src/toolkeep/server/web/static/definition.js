// The form of a definition: its list of parameters, and which of its problems are shown. The server finds them.
"use strict";

// --- the list of parameters --------------------------------------------------------------------------------------

let added = 0;

function addParameter(button) {
  const list = document.getElementById(button.dataset.add);
  const template = document.getElementById("parameter-template");
  const made = template.content.cloneNode(true);
  const mark = `n${++added}`;
  for (const element of made.querySelectorAll("[id],[for],[name],[aria-describedby],[aria-labelledby]"))
    for (const attribute of ["id", "for", "name", "aria-describedby", "aria-labelledby"])
      if (element.hasAttribute(attribute))
        element.setAttribute(attribute, element.getAttribute(attribute).replaceAll("__", mark));
  const card = made.firstElementChild;
  list.append(card);
  htmx.process(card);
  settle(card);
  card.querySelector("input").focus();
  announce(`Parameter added; there are ${list.children.length} now`);
  changed(list);
}

function removeParameter(button) {
  const card = button.closest(".param-card");
  const list = card.parentElement;
  const named = card.querySelector("input").value || "without a name";
  const next = card.nextElementSibling ?? card.previousElementSibling;
  card.remove();
  (next?.querySelector("input") ?? document.querySelector(`[data-add="${list.id}"]`)).focus();
  announce(`Parameter ${named} removed; ${list.children.length} left`);
  changed(list);
}

document.addEventListener("click", ({ target }) => {
  const button = target.closest("button");
  if (button?.dataset.add) addParameter(button);
  else if (button && "remove" in button.dataset) removeParameter(button);
});

// --- problems ----------------------------------------------------------------------------------------------------

// A problem is shown once its field was left, or the form was sent: nobody is told what is missing before they come to it.
const definition = document.getElementById("definition");
definition.addEventListener("focusout", ({ target, relatedTarget }) => {
  for (let one = target; one && one !== definition; one = one.parentElement) if (!one.contains(relatedTarget)) one.classList.add("left");
  settle(document);
});
definition.addEventListener("submit", () => definition.classList.add("sent"));
