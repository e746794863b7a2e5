// A program that stays and fetches what it is told with the built-in `fetch`, which knows no proxy.
const lines = require("node:readline").createInterface({ input: process.stdin });
lines.on("line", async (line) => {
  const request = JSON.parse(line);
  const { url } = request.arguments;
  const result = await fetch(url).then((page) => page.text(), (error) => `${error} ${error.cause}`);
  process.stdout.write(JSON.stringify({ id: request.id, result }) + "\n");
});
