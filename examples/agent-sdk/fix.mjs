// An agent of one's own: the Claude Agent SDK for TypeScript and JavaScript.
//
//     stockade agent run --profile claude --name fix -- node fix.mjs "fix the failing test"

import { createSdkMcpServer, query, tool } from "@anthropic-ai/claude-agent-sdk";
import { z } from "zod";

const shout = tool("shout", "Says a word loudly", { word: z.string() }, async ({ word }) => ({
  content: [{ type: "text", text: word.toUpperCase() }],
}));

const options = {
  // The wall is around the whole script, so nobody needs to be asked about each step.
  permissionMode: "bypassPermissions",
  allowDangerouslySkipPermissions: true,
  mcpServers: { own: createSdkMcpServer({ name: "own", tools: [shout] }) },
};

for await (const message of query({ prompt: process.argv[2], options })) {
  if (message.type === "result") console.log(message.result);
}
