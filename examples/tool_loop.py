"""An agent's loop: the model calls tools until it can answer. `python examples/tool_loop.py [QUESTION]`."""

import json
import os
import sys
from typing import Any

from openai import OpenAI

WEATHER = {"Oslo": {"condition": "cold", "temperature": 4}, "Lima": {"condition": "warm", "temperature": 23}}


def get_weather(city: str) -> dict[str, Any]:
    return WEATHER.get(city, {"error": f"no station in {city}"})


TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Get the weather in a city",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}},
                "required": ["city"],
            },
        },
    }
]
client = OpenAI(
    base_url=os.environ.get("K3_BASE_URL", "http://localhost:8000/v1"),
    api_key=os.environ.get("K3_API_KEY", "none"),
)
question = sys.argv[1] if len(sys.argv) > 1 else "What is the weather in Lima and in Oslo?"
messages: list[Any] = [{"role": "user", "content": question}]
for _ in range(10):
    reply = client.chat.completions.create(
        model="kimi-k3", messages=messages, tools=TOOLS, temperature=0, max_tokens=500
    )
    message = reply.choices[0].message
    # The whole message goes back, reasoning_content included: K3 is trained on histories with their thinking,
    # and the prompt then begins with the very ids that are in the engine's cache.
    messages.append(message.model_dump(exclude_none=True))
    if not message.tool_calls:
        print(message.content)
        break
    for call in message.tool_calls:
        if call.type != "function":  # OpenAI has other types; K3 has not
            continue
        try:
            result: Any = get_weather(**json.loads(call.function.arguments))
        except (TypeError, ValueError) as error:  # the model reads what was wrong and tries again
            result = {"error": str(error)}
        print(f"{call.function.name}({call.function.arguments}) -> {json.dumps(result)}", file=sys.stderr)
        messages.append({"role": "tool", "tool_call_id": call.id, "content": json.dumps(result)})
else:
    sys.exit("no answer after ten turns")
