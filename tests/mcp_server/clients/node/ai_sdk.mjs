// The AI SDK: a model that makes one call and notes what it is told.
import { createMCPClient, ElicitationRequestSchema } from "@ai-sdk/mcp";
import { Experimental_StdioMCPTransport as StdioTransport } from "@ai-sdk/mcp/mcp-stdio";
import { generateText, isStepCount } from "ai";
import { MockLanguageModelV3 } from "ai/test";
import { answer, run } from "./steps.mjs";

const usage = { inputTokens: { total: 1 }, outputTokens: { total: 1 } };

await run(async (server, heard) => {
  const [command, ...args] = server.command ?? [];
  const client = await createMCPClient({
    transport: command ? new StdioTransport({ command, args, stderr: "ignore" }) : { type: "http", url: server.url },
    capabilities: { elicitation: {} },
    onUncaughtError: () => {},
  });
  client.onElicitationRequest(ElicitationRequestSchema, ({ params }) => answer(heard, params.message));
  return {
    tools: async () => Object.keys(await client.tools()),
    call: async (toolName, given) => {
      let told;
      const model = new MockLanguageModelV3({
        doGenerate: async ({ prompt }) => {
          const last = prompt.at(-1);
          if (last.role === "tool") told = last.content[0].output;
          const made = { type: "tool-call", toolCallId: "1", toolName, input: JSON.stringify(given) };
          return {
            content: [told ? { type: "text", text: "done" } : made],
            finishReason: { unified: told ? "stop" : "tool-calls" },
            usage,
            warnings: [],
          };
        },
      });
      await generateText({ model, tools: await client.tools(), prompt: "Go.", stopWhen: isStepCount(2) });
      const text = Array.isArray(told.value) ? told.value[0].text : told.value;
      return { text: typeof text === "string" ? text : JSON.stringify(text), is_error: told.type.startsWith("error") };
    },
    prompt: async (name, given) =>
      (await client.experimental_getPrompt({ name, arguments: given })).messages[0].content.text,
    resource: async (uri) => (await client.readResource({ uri })).contents[0].text,
    close: () => client.close(),
  };
});
