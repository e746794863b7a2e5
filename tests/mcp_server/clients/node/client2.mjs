// @modelcontextprotocol/client 2: the official client; the third argument is the era, `legacy` or `auto`.
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { answer, run } from "./steps.mjs";

const LOG_LEVEL = { "io.modelcontextprotocol/logLevel": "info" };

await run(async (server, heard) => {
  const client = new Client(
    { name: "round", version: "1" },
    {
      capabilities: { elicitation: {} },
      versionNegotiation: { mode: process.argv[3] },
      listChanged: { tools: { onChanged: () => heard.changes.push("tools") } },
    },
  );
  client.setRequestHandler("elicitation/create", ({ params }) => answer(heard, params.message));
  client.setNotificationHandler("notifications/message", ({ params }) =>
    heard.notices.push(`log: ${params.data}`),
  );
  const [command, ...args] = server.command ?? [];
  await client.connect(
    command
      ? new StdioClientTransport({ command, args, stderr: "ignore" })
      : new StreamableHTTPClientTransport(new URL(server.url)),
  );
  const onprogress = ({ message }) => heard.notices.push(`progress: ${message}`);
  const meta = process.argv[3] === "legacy" ? {} : { _meta: LOG_LEVEL };
  return {
    tools: async () => (await client.listTools()).tools.map((tool) => tool.name),
    call: async (name, given) => {
      const result = await client.callTool({ name, arguments: given, ...meta }, { onprogress });
      return { text: result.content[0].text, is_error: result.isError ?? false };
    },
    prompt: async (name, given) =>
      (await client.getPrompt({ name, arguments: given })).messages[0].content.text,
    resource: async (uri) => (await client.readResource({ uri })).contents[0].text,
    close: () => client.close(),
  };
});
