"""A Messages body as a `Request`."""

from __future__ import annotations

import json
from typing import Any

from gateway.errors import ThreadsNotKept, bad_request
from gateway.generation.options import Options, Request
from gateway.generation.rendering import refused
from gateway.schema.messages import WITHOUT_EFFECT, CountTokensRequest, MessagesRequest
from gateway.wire.messages.context_edits import apply_edits
from gateway.xtml import ConversationError, Reading, from_messages

# What shapes the prompt.
_CONVERSATION = ("messages", "system", "tools", "tool_choice", "thinking", "output_config")


def read_messages(body: CountTokensRequest, reading: Reading | None = None) -> Request:
    """Check in depth what the schema could not; `reading` says how.

    Raises:
        InvalidRequest: names the field at fault.
    """
    if isinstance(body, MessagesRequest) and body.thread is not None:
        raise ThreadsNotKept
    reading = reading or Reading()
    fields: dict[str, Any] = {
        name: value for name in _CONVERSATION if (value := getattr(body, name)) is not None
    }
    try:
        if body.context_management is not None:
            fields["messages"] = apply_edits(fields["messages"], body.context_management, reading)
        conversation = from_messages(fields, reading)
    except ConversationError as error:
        raise refused(error) from None
    sent = (name for name in WITHOUT_EFFECT if getattr(body, name, None) is not None)
    found: dict[str, Any] = {
        "ignored": (*sent, *reading.ignored),
        "unknown": (*body.unknown_fields, *reading.unknown),
        "parallel_tool_calls": _parallel(body.tool_choice),
        "cache_hint": _session(body.metadata),
    }
    if isinstance(body, MessagesRequest):
        found |= {
            "max_tokens": body.max_tokens or 1,  # 0 only fills the cache
            "stop": tuple(body.stop_sequences or ()),
            "temperature": body.temperature,
            "top_p": body.top_p,
            "top_k": body.top_k,
        }
    return Request(body.model, conversation, Options(**found), tuple(reading.history))


def user_of(body: CountTokensRequest) -> str | None:
    """Whose request it is, by `metadata.user_id`; a session that some clients put inside is no part of it."""
    user = (body.metadata or {}).get("user_id")
    if not isinstance(user, str):
        return None
    parts = _parts(user)
    if parts is None:
        return user
    kept = {name: value for name, value in parts.items() if "session" not in name}
    return json.dumps(kept, sort_keys=True) if kept else None


def _session(metadata: dict[str, Any] | None) -> str | None:
    user = (metadata or {}).get("user_id")
    parts = _parts(user) if isinstance(user, str) else None
    session = (parts or {}).get("session_id")
    return session if isinstance(session, str) else None


def _parts(user: str) -> dict[str, Any] | None:
    """The object that Claude Code writes as JSON text into `user_id`."""
    if not user.startswith("{") or len(user) > 4096:
        return None
    try:
        found = json.loads(user)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _parallel(choice: dict[str, Any] | None) -> bool:
    value = (choice or {}).get("disable_parallel_tool_use")
    if value is not None and not isinstance(value, bool):
        raise bad_request(
            "tool_choice.disable_parallel_tool_use must be true or false",
            "tool_choice.disable_parallel_tool_use",
        )
    return value is not True
