// Before anything is drawn: the theme that this browser chose.
"use strict";
try {
  const chosen = localStorage.getItem("toolkeep.theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // Storage is closed: the theme of the system.
}
