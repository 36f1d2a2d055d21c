// A tool loop on a real model, whole and streamed. Usage: node loop.mjs BASE_URL openai|anthropic
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { generateText, jsonSchema, stepCountIs, streamText, tool } from "ai";

const [baseURL, name] = process.argv.slice(2);
const create = { openai: createOpenAI, anthropic: createAnthropic }[name];

const calls = [];
const request = {
  model: create({ baseURL, apiKey: "none" })("kimi-k3"),
  prompt: "What is the weather in Oslo?",
  temperature: 0,
  stopWhen: stepCountIs(3),
  tools: {
    get_weather: tool({
      description: "Get the weather in a city",
      inputSchema: jsonSchema({
        type: "object",
        properties: { city: { type: "string" } },
        required: ["city"],
      }),
      execute: async (input) => {
        calls.push(input);
        return JSON.stringify({ condition: "cold", temperature: 4 });
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
    reasoning: whole.steps.map((step) => step.reasoningText ?? ""),
    calls: wholeCalls,
    streamed,
    streamedCalls: calls,
    usage: await stream.usage,
    warnings: whole.warnings,
  }),
);
