"""How a prompt is written, plainly from docs/format.md; shares no code with `gateway.xtml`.

For requests as the document describes them: checked ones, with effort as K3 knows it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

Segment = tuple[str, bool]  # text, and whether it is a marker

OPEN, CLOSE, SEP, END = (("<|open|>", True), ("<|close|>", True), ("<|sep|>", True), ("<|end_of_msg|>", True))
FENCE = "```"
NOTES = {
    "tools": f"# Tools\nHere are the available tools, described in JSONSchema.\n\n{FENCE}json\n%s\n{FENCE}",
    "more tools": "## New Tools Available\nThe system dynamically extends the toolset via lazy-loading.\n"
    "You have access to all existing and extended tools.\nHere are the specs for the extended tools.\n\n"
    f"{FENCE}json\n%s\n{FENCE}",
    "effort": "`thinking_effort` guides on how much to think in your thinking channel (not including the "
    "response channel), supported values include `low`, `medium`, `high`, and `max`.\n"
    "Now the system is invoked with `thinking_effort=%s`.",
    "required": "The system is invoked with `tool_choice=required`.\n"
    "You MUST call tools in the next message.",
    "none": "The system is invoked with `tool_choice=none`.\n"
    "You MUST NOT call any tools in the next message.",
    "format": "The system is invoked with `response_format=%s`.\nYour response must be raw JSON data without "
    f"markdown code blocks ({FENCE}json) or any additional formatting.",
    "schema": f"\nThe JSON data must match the following schema:\n{FENCE}json\n%s\n{FENCE}",
}


def segments(request: dict[str, Any], effort: str | None, media: list[list[list[Any]]]) -> Iterator[Segment]:
    """The prompt's segments. `media`: for each picture or clip its [lead, label, pads]."""
    thinking = request.get("thinking", {}).get("type") != "disabled"
    spans = iter(media)
    if request.get("tools"):
        yield from note("tool-declare", NOTES["tools"] % compact(request["tools"]))
    if thinking and effort:
        yield from note("thinking-effort", NOTES["effort"] % effort)
    messages = request["messages"]
    partial = messages[-1] if messages[-1].get("partial") else None
    for message, attributes in placed(messages[:-1] if partial else messages):
        if message.get("tools"):
            yield from note("tool-declare", NOTES["more tools"] % compact(message["tools"]))
            continue
        yield from opener("message", *attributes)
        if message["role"] == "assistant":
            yield from channels(message, thinking)
        else:
            yield from content(message, spans)
        yield from [*closer("message"), END]
    if request.get("tool_choice") in ("required", "none"):
        yield from note("tool-choice", NOTES[request["tool_choice"]])
    wanted = request.get("response_format", {"type": "text"})
    if wanted["type"] != "text":
        body = NOTES["format"] % wanted["type"]
        if wanted["type"] == "json_schema":
            body += NOTES["schema"] % compact(wanted["json_schema"]["schema"])
        yield from note("response-format", body)
    if not partial:
        yield from opener("message", ("role", "assistant"))
        yield from opener("think" if thinking else "response")
        return
    yield from opener("message", ("role", "assistant"), *named(partial))
    if thinking and partial.get("reasoning_content"):
        yield from [*opener("think"), (partial["reasoning_content"], False)]
        if not partial["content"]:
            return
        yield from closer("think")
    yield from [*opener("response"), (partial["content"], False)]


def opener(name: str, *attributes: tuple[str, str]) -> Iterator[Segment]:
    yield from [OPEN, (name, False)]
    for key, value in attributes:
        escaped = value.replace("&", "&amp;").replace('"', "&quot;")
        yield from [(f" {key}", False), ('="', False), (escaped, False), ('"', False)]
    yield SEP


def closer(name: str) -> list[Segment]:
    return [CLOSE, (name, False), SEP]


def note(kind: str, body: str) -> Iterator[Segment]:
    yield from opener("message", ("role", "system"), ("type", kind))
    yield from [(body, False), *closer("message"), END]


def compact(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def named(message: dict[str, Any]) -> list[tuple[str, str]]:
    return [("name", message["name"])] if message.get("name") else []


def content(message: dict[str, Any], spans: Iterator[list[list[Any]]]) -> Iterator[Segment]:
    given = message.get("content") or []
    for part in [{"type": "text", "text": given}] if isinstance(given, str) else given:
        if part["type"] == "text":
            yield part["text"], False
            continue
        for lead, label, n_pads in next(spans):
            yield from [(lead, False), ("<|media_begin|>", True), (label, False), ("<|media_content|>", True)]
            yield from [("<|media_pad|>", True)] * n_pads
            yield "<|media_end|>", True


def channels(message: dict[str, Any], thinking: bool) -> Iterator[Segment]:
    if thinking:
        yield from [*opener("think"), (message.get("reasoning_content") or "", False), *closer("think")]
    yield from [*opener("response"), *content(message, iter(())), *closer("response")]
    if not message.get("tool_calls"):
        return
    yield from opener("tools")
    for number, call in enumerate(message["tool_calls"], 1):
        yield from opener("call", ("tool", call["function"]["name"]), ("index", str(number)))
        yield from arguments(call["function"].get("arguments"))
        yield from closer("call")
    yield from closer("tools")


def arguments(given: Any) -> Iterator[Segment]:
    if given in (None, ""):
        return
    members = list(given.items()) if isinstance(given, dict) else literals(given)
    if members is None:
        yield from [*opener("json", ("type", "object")), (given, False), *closer("json")]
        return
    for key, value in members:
        literal = value if isinstance(value, Literal) else None
        read = json.loads(literal) if literal is not None else value
        text = read if isinstance(read, str) else (literal or json.dumps(read, ensure_ascii=False))
        yield from opener("argument", ("key", key), ("type", type_of(read)))
        yield from [(text, False), *closer("argument")]


class Literal(str):
    """JSON as it was sent."""


def literals(text: str) -> list[tuple[str, Any]] | None:
    """Members of a JSON object with their literals, None where the text is not one."""
    decoder, members = json.JSONDecoder(), []
    try:
        at = len(text) - len(text.lstrip())
        if text[at] != "{":
            return None
        at = skip(text, at + 1)
        while text[at] != "}":
            if members:
                if text[at] != ",":
                    return None
                at = skip(text, at + 1)
            if text[at] != '"':
                return None
            key, at = decoder.raw_decode(text, at)
            at = skip(text, at)
            if text[at] != ":":
                return None
            start = skip(text, at + 1)
            _, end = decoder.raw_decode(text, start)
            members.append((key, Literal(text[start:end])))
            at = skip(text, end)
    except (IndexError, ValueError):
        return None
    return members


def skip(text: str, at: int) -> int:
    while text[at : at + 1] in (" ", "\t", "\n", "\r"):
        at += 1
    return at


def type_of(value: Any) -> str:
    for kind, name in ((bool, "boolean"), (type(None), "null"), (int, "number"), (float, "number")):
        if isinstance(value, kind):
            return name
    return {str: "string", dict: "object", list: "array"}[type(value)]


def placed(messages: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], list[tuple[str, str]]]]:
    """Messages in prompt order with their attributes."""
    names: dict[str, str] = {}
    at, n_results, order = 0, 0, list[str]()
    while at < len(messages):
        message = messages[at]
        if message["role"] != "tool":
            if message["role"] == "assistant":
                calls = {c["id"]: c["function"]["name"] for c in message.get("tool_calls") or []}
                names, order, n_results = names | calls, list(calls), 0
            role = "system" if message["role"] == "developer" else message["role"]
            yield message, [("role", role), *named(message)]
            at += 1
            continue
        run = []
        while at < len(messages) and messages[at]["role"] == "tool":
            run.append(messages[at])
            at += 1
        if all(result["tool_call_id"] in order for result in run):
            run.sort(key=lambda result: order.index(result["tool_call_id"]))
        for result in run:
            n_results += 1
            tool = names[result["tool_call_id"]]
            yield result, [("role", "tool"), ("tool", tool), ("index", str(n_results))]
