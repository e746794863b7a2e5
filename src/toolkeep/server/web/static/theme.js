// Before anything is drawn: the theme that this browser chose, and whether it hides the first steps.
"use strict";
try {
  const chosen = localStorage.getItem("toolkeep.theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
  if (localStorage.getItem("toolkeep.start") === "off" && location.pathname === "/ui/") document.documentElement.dataset.start = "off";
} catch {
  // Storage is closed: the theme of the system.
}
