// Signs in with the code of a link, which stands in the fragment and so reaches no server by itself.
"use strict";

const state = document.getElementById("state");

async function signIn(field, value) {
  const answer = await fetch("/ui/sign-in", { method: "POST", body: new URLSearchParams({ [field]: value }) });
  if (!answer.ok) {
    state.textContent =
      field === "code"
        ? "That link does not count, or not any more. A link counts once, for five minutes."
        : "That token does not count.";
    state.className = "bad-text";
    return;
  }
  localStorage.setItem("toolkeep.key", await answer.text());
  sessionStorage.removeItem("toolkeep.tab");
  location.replace("/ui/");
}

function useLink() {
  const code = location.hash.slice(1);
  if (!code) return;
  history.replaceState(null, "", location.pathname);
  state.textContent = "Signing in …";
  signIn("code", code);
}

useLink();
addEventListener("hashchange", useLink); // a link that is opened in this very tab loads nothing anew

document.getElementById("with-token").addEventListener("submit", (event) => {
  event.preventDefault();
  signIn("token", new FormData(event.target).get("token"));
});
