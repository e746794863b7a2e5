// Signs in with the code of a link, which stands in the fragment and so reaches no server by itself; with a
// token; or with an identity provider, whose answer stands in the query.
"use strict";

const state = document.getElementById("state");

const REFUSED = {
  code: "That link does not count, or not any more. A link counts once, for five minutes.",
  token: "That token does not count.",
  answer: "Your provider did not sign you in, or not in this browser. Begin again here.",
  begin: "The provider cannot be reached, or is not set up. The log of the server says why.",
};

function ask(fields) {
  return fetch("/ui/sign-in", { method: "POST", body: new URLSearchParams(fields) });
}

function refuse(field) {
  state.textContent = REFUSED[field];
  state.className = "bad-text";
}

async function signIn(field, value, more) {
  const answer = await ask({ [field]: value, ...more });
  if (!answer.ok) return refuse(field);
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

// The key of the attempt stays in this tab: other ports of this host share cookies, and not this.
const ATTEMPT = "toolkeep.attempt";

function useAnswer() {
  const key = sessionStorage.getItem(ATTEMPT);
  sessionStorage.removeItem(ATTEMPT);
  if (!new URLSearchParams(location.search).has("state")) return;
  const answer = location.search;
  history.replaceState(null, "", location.pathname);
  state.textContent = "Signing in …";
  signIn("answer", answer, { key: key || "" });
}

async function begin(form) {
  const again = location.search === "?again" ? { fresh: "1" } : {};
  const answer = await ask({ begin: new FormData(form).get("begin"), ...again });
  if (!answer.ok) return refuse("begin");
  const [key, url] = (await answer.text()).split(" ");
  sessionStorage.setItem(ATTEMPT, key);
  location.assign(url);
}

for (const form of document.querySelectorAll(".with-provider"))
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    begin(form);
  });

useAnswer();
useLink();
addEventListener("hashchange", useLink); // a link that is opened in this very tab loads nothing anew

document.getElementById("with-token").addEventListener("submit", (event) => {
  event.preventDefault();
  signIn("token", new FormData(event.target).get("token"));
});
