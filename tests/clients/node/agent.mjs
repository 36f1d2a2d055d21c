// A tool loop with the AI SDK, whole and streamed. Usage: node agent.mjs BASE_URL PROVIDER
import { createAnthropic } from "@ai-sdk/anthropic";
import { createMoonshotAI } from "@ai-sdk/moonshotai";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const [baseURL, name] = process.argv.slice(2);
const create = {
  anthropic: createAnthropic,
  moonshotai: createMoonshotAI,
  openai: createOpenAI,
  "openai-compatible": (options) => createOpenAICompatible({ name: "k3", includeUsage: true, ...options }),
}[name];
const provider = create({ baseURL, apiKey: "none" });

const calls = [];
const request = {
  model: provider("kimi-k3"),
  prompt: "Weather in Oslo?",
  stopWhen: stepCountIs(3),
  tools: {
    get_weather: tool({
      description: "Get weather",
      inputSchema: z.object({ city: z.string(), days: z.number().int() }),
      execute: async (input) => {
        calls.push(input);
        return "rain";
      },
    }),
  },
};

const whole = await generateText(request);
const wholeCalls = calls.splice(0);
const stream = streamText(request);
let streamed = "";
for await (const text of stream.textStream) streamed += text;

console.log(
  JSON.stringify({
    text: whole.text,
    reasoning: whole.reasoningText,
    calls: wholeCalls,
    streamed,
    streamedCalls: calls,
    usage: await stream.usage,
  }),
);
