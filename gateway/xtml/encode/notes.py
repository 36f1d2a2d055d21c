"""The texts of the service's own system messages: declarations, effort, tool choice, response format.

Texts and their conditions: docs/format.md#notes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from gateway.xtml.conversation import ConversationError, Effort, ResponseFormat, ToolChoice

_TOOLS = "# Tools\nHere are the available tools, described in JSONSchema.\n\n```json\n{tools}\n```"

_NEW_TOOLS = (
    "## New Tools Available\n"
    "The system dynamically extends the toolset via lazy-loading.\n"
    "You have access to all existing and extended tools.\n"
    "Here are the specs for the extended tools.\n\n"
    "```json\n{tools}\n```"
)

_EFFORT = (
    "`thinking_effort` guides on how much to think in your thinking channel "
    "(not including the response channel), "
    "supported values include `low`, `medium`, `high`, and `max`.\n"
    "Now the system is invoked with `thinking_effort={effort}`."
)

_TOOL_CHOICE = {
    "required": (
        "The system is invoked with `tool_choice=required`.\nYou MUST call tools in the next message."
    ),
    "none": (
        "The system is invoked with `tool_choice=none`.\nYou MUST NOT call any tools in the next message."
    ),
}

_RESPONSE_FORMAT = (
    "The system is invoked with `response_format={type}`.\n"
    "Your response must be raw JSON data without markdown code blocks (```json) "
    "or any additional formatting."
)

_SCHEMA = "\nThe JSON data must match the following schema:\n```json\n{schema}\n```"


def declaration(tools: Sequence[dict[str, Any]], param: str, *, dynamic: bool = False) -> str:
    """Declares `tools`, whole items, in the request's order. Raises ConversationError naming `param`."""
    # One at a time: writing megabytes of schemas in one piece would keep all other threads waiting.
    items = ",".join(compact_json(tool, f"{param}[{index}]") for index, tool in enumerate(tools))
    return (_NEW_TOOLS if dynamic else _TOOLS).replace("{tools}", f"[{items}]")


def effort(value: Effort) -> str:
    """How much to think."""
    return _EFFORT.replace("{effort}", value)


def tool_choice(choice: ToolChoice) -> str | None:
    """The note for `required` and `none`. None for `auto`, and for a named tool.

    The reference writes nothing for a named tool (docs/format.md#tool-choice); the grammar sees to it that it
    is called, and the prompt stays the one that the model was trained on.
    """
    return _TOOL_CHOICE.get(choice.mode)


def response_format(wanted: ResponseFormat) -> str | None:
    """The note for JSON answers, None for text. Raises ConversationError."""
    if wanted.type == "text":
        return None
    note = _RESPONSE_FORMAT.replace("{type}", wanted.type)
    if wanted.type == "json_schema":
        schema = compact_json(wanted.schema, "response_format.json_schema.schema")
        note += _SCHEMA.replace("{schema}", schema)
    return note


def compact_json(value: Any, param: str) -> str:
    """JSON with the keys of every object sorted, without blanks, non-ASCII kept (docs/format.md#json)."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True, allow_nan=False)
    except RecursionError:
        raise ConversationError(f"{param} nests too deeply; flatten it", param) from None
    except (TypeError, ValueError) as error:
        raise ConversationError(f"{param} cannot be written as JSON: {error}", param) from None
