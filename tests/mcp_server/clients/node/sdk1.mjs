// @modelcontextprotocol/sdk 1: the official client before 2026.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { ElicitRequestSchema, LoggingMessageNotificationSchema } from "@modelcontextprotocol/sdk/types.js";
import { answer, run } from "./steps.mjs";

await run(async (server, heard) => {
  const client = new Client(
    { name: "round", version: "1" },
    {
      capabilities: { elicitation: {} },
      listChanged: { tools: { onChanged: () => heard.changes.push("tools") } },
    },
  );
  client.setRequestHandler(ElicitRequestSchema, ({ params }) => answer(heard, params.message));
  client.setNotificationHandler(LoggingMessageNotificationSchema, ({ params }) =>
    heard.notices.push(`log: ${params.data}`),
  );
  const [command, ...args] = server.command ?? [];
  await client.connect(
    command
      ? new StdioClientTransport({ command, args, stderr: "ignore" })
      : new StreamableHTTPClientTransport(new URL(server.url)),
  );
  const onprogress = ({ message }) => heard.notices.push(`progress: ${message}`);
  return {
    tools: async () => (await client.listTools()).tools.map((tool) => tool.name),
    call: async (name, given) => {
      const result = await client.callTool({ name, arguments: given }, undefined, { onprogress });
      return { text: result.content[0].text, is_error: result.isError ?? false };
    },
    prompt: async (name, given) =>
      (await client.getPrompt({ name, arguments: given })).messages[0].content.text,
    resource: async (uri) => (await client.readResource({ uri })).contents[0].text,
    close: () => client.close(),
  };
});
