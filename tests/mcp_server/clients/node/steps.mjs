// One round of a client library, as in ../steps.py: every cell of the table, tried on a running keep.
import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";

const SILENCE_MS = 5000;
const given = JSON.parse(readFileSync(process.argv[2], "utf8"));

export class Lacking extends Error {}

async function toolkeep(...words) {
  const [program, ...rest] = [...given.toolkeep, ...words, "--json", "--project", given.project];
  return JSON.parse((await promisify(execFile)(program, rest)).stdout);
}

async function until(isSo) {
  for (const end = Date.now() + SILENCE_MS; Date.now() < end && !(await isSo()); ) await sleep(50);
}

async function tried(act) {
  try {
    return await Promise.race([act(), sleep(60000, null, { ref: false }).then(() => Promise.reject(Error("60 s")))]);
  } catch (error) {
    return error instanceof Lacking ? { lacking: error.message } : { raised: `${error.name}: ${error.message}` };
  }
}

async function inbox(call) {
  while (!call.isOver) {
    const [first] = await toolkeep("approvals", "list");
    if (first) return first.id;
  }
  throw Error(`it did not wait: ${JSON.stringify(await call)}`);
}

function begun(call) {
  const over = () => (call.isOver = true);
  call.then(over, over);
  return call;
}

const approve = (id) => toolkeep("approve", id, "--token-file", given.token);

// open(server, heard) gives {tools, call, prompt, resource, close}; heard has notices, questions and changes.
export async function run(open) {
  const found = {};
  let heard = { notices: [], questions: [], changes: [] };
  let session = await open(given.plain, heard);
  const listed = async () =>
    (await session.tools()).filter((name) => ["count_words", "send_note"].includes(name)).sort();
  found.list = await tried(listed);
  found.call = await tried(() => session.call("count_words", { text: "to be or not" }));
  found.refusal = {
    misnamed: await tried(() => session.call("count_words", { txt: "to be" })),
    empty: await tried(() => session.call("count_words", { text: "" })),
  };
  found.waiting = await tried(async () => {
    heard.notices.length = 0;
    const call = begun(session.call("send_note", { text: "hi" }));
    const id = await inbox(call);
    await until(() => heard.notices.length);
    const notices = [...heard.notices];
    await approve(id);
    return { notices, id, ...(await call) };
  });
  found.prompt = await tried(() => session.prompt("review", { text: "this" }));
  found.resource = await tried(() => session.resource("toolkeep:docs/docs://readme"));
  found.changed = await tried(async () => {
    heard.changes.length = 0;
    const cells = { told: false };
    try {
      await toolkeep("disable", "count_words");
      await until(() => heard.changes.length);
      cells.told = heard.changes.length > 0;
      cells.without = await listed();
    } finally {
      await toolkeep("enable", "count_words");
    }
    await until(async () => (await listed()).length === 2);
    return { ...cells, again: await listed() };
  });
  await session.close();
  heard = { notices: [], questions: [], changes: [] };
  session = await open(given.answering, heard);
  found.answer = await tried(async () => {
    const call = begun(session.call("send_note", { text: "hi" }));
    await until(() => call.isOver);
    const waits = !call.isOver;
    if (waits) await approve(await inbox(call));
    return { questions: heard.questions, in_the_inbox: waits, ...(await call) };
  });
  await session.close();
  console.log(JSON.stringify(found));
}

export function answer(heard, message) {
  heard.questions.push(message);
  return { action: "accept", content: { answer: "Approve" } };
}
