"""Keep a long prompt prefix in the engine's cache: `python examples/pinned_prefix.py`. No packages needed."""

import json
import os
import urllib.request
from typing import Any

BASE = os.environ.get("K3_BASE_URL", "http://localhost:8000/v1")
NAME = "handbook"
SYSTEM = "You answer questions about the house. " + " ".join(
    f"Rule {number}: room {number} is closed at night." for number in range(1, 41)
)


def call(method: str, path: str, body: Any = None) -> tuple[Any, str]:
    """A reply's JSON, and what its header says of the prefix."""
    request = urllib.request.Request(
        BASE + path,
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={
            "content-type": "application/json",
            "authorization": f"Bearer {os.environ.get('K3_API_KEY', 'none')}",
        },
    )
    with urllib.request.urlopen(request, timeout=300) as reply:
        return json.loads(reply.read() or b"null"), reply.headers.get("k3-prefix", "")


# Answered when the engine has the prefix. An effort is part of a prompt's beginning, so a pin is for some.
pin, _ = call("POST", "/prefixes", {"name": NAME, "system": SYSTEM, "efforts": ["low"], "ttl": 3600})
print(f"pinned {pin['tokens']} tokens")
try:
    for question in ("Which room is closed?", "Is room 3 open?"):
        messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}]
        body = {"model": "kimi-k3", "messages": messages, "reasoning_effort": "low", "max_tokens": 30}
        reply, prefix = call("POST", "/chat/completions", body)
        print(
            f"{reply['usage']['cached_tokens']} of {reply['usage']['prompt_tokens']} tokens cached ({prefix})"
        )
finally:
    call("DELETE", f"/prefixes/{NAME}")
