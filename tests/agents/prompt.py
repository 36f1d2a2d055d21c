"""Reads a K3 prompt back from the ids that an engine is given: messages, thinking, calls, declared tools."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from gateway.xtml import Vocab

_ATTRIBUTE = re.compile(r' ([a-z-]+)="([^"]*)"')
_DECLARATION = re.compile(r"```json\n(.*)\n```", re.DOTALL)


@dataclass
class Seen:
    """One message of a prompt.

    `text` is the body, of an assistant its response; `calls` are names of tools.
    """

    role: str
    attributes: dict[str, str]
    text: str = ""
    thinking: str | None = None
    calls: list[str] = field(default_factory=list)


def read_prompt(ids: Sequence[int], vocab: Vocab) -> list[Seen]:
    """The messages of a prompt, the one that the model is to write left out."""
    messages: list[Seen] = []
    path: list[str] = []
    texts: list[str] = []
    start = 0
    marks = {vocab.open: "open", vocab.close: "close"}
    position = 0
    while position < len(ids):
        kind = marks.get(ids[position])
        if kind is None:
            position += 1
            continue
        text = vocab.decode(ids[start:position]) if position > start else ""
        if texts:
            texts[-1] += text
        end = position + list(ids[position:]).index(vocab.sep)
        tag = vocab.decode(ids[position + 1 : end])
        start = position = end + 1
        if kind == "open":
            name = tag.split(" ")[0]
            attributes = dict(_ATTRIBUTE.findall(tag))
            path.append(name)
            texts.append("")
            if name == "message":
                messages.append(Seen(attributes.get("role", ""), attributes))
            elif name == "call":
                messages[-1].calls.append(attributes["tool"])
            continue
        name, body = path.pop(), texts.pop()
        if name == "message":
            messages[-1].text += body
            if start < len(ids) and ids[start] == vocab.end_of_msg:
                start = position = start + 1
        elif name == "think":
            messages[-1].thinking = body
        elif name == "response":
            messages[-1].text += body
    if "message" in path:
        messages.pop()
    return messages


def declared_tools(messages: Sequence[Seen]) -> dict[str, dict[str, Any]]:
    """Name to JSON schema of the arguments, of all tools declared so far."""
    tools: dict[str, dict[str, Any]] = {}
    for message in messages:
        if message.attributes.get("type") == "tool-declare":
            found = _DECLARATION.search(message.text)
            assert found, message.text[:200]
            for tool in json.loads(found[1]):
                function = tool.get("function", tool)
                tools[function["name"]] = function.get("parameters") or {}
    return tools
