"""A conversation as data: what the K3 chat format can say, free of HTTP (docs/format.md#prompt).

`from_request` in `gateway.xtml.request.chat` makes one out of an OpenAI chat request; `encode` renders it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

Effort = Literal["low", "high", "max"]
Detail = Literal["auto", "low", "high"]
Role = Literal["system", "user", "assistant", "tool"]


class ConversationError(ValueError):
    """The request cannot be rendered. `param` names the field, e.g. `messages[2].tool_call_id`."""

    def __init__(self, message: str, param: str) -> None:
        super().__init__(message)
        self.message = message
        self.param = param


@dataclass(frozen=True, slots=True)
class MediaPart:
    """A picture or clip in its place among text. `url` is as the client sent it; `param` says where."""

    kind: Literal["image", "video"]
    url: str
    detail: Detail = "auto"
    param: str = ""


Part = str | MediaPart


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call in the history. `arguments` is as the client sent it: JSON text, an object, or nothing.

    See docs/format.md#arguments.
    """

    id: str | None
    name: str
    arguments: str | dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Message:
    """One message; which fields count depends on the role (docs/format.md#roles)."""

    role: Role
    parts: tuple[Part, ...] = ()
    name: str | None = None
    reasoning: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tools: tuple[dict[str, Any], ...] = ()  # dynamic declaration, role system only
    tool_call_id: str | None = None
    tool: str | None = None
    partial: bool = False


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """`mode` auto, none, required; `named` carries the tool's name. `allowed`: only these may be called."""

    mode: Literal["auto", "none", "required", "named"] = "auto"
    name: str | None = None
    allowed: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class ResponseFormat:
    """`schema` is the JSON schema of `json_schema`; with `strict` false any JSON object will do."""

    type: Literal["text", "json_object", "json_schema"] = "text"
    schema: dict[str, Any] | None = None
    strict: bool = True


@dataclass(frozen=True, slots=True)
class Conversation:
    """All that determines a prompt. `effort` None means no effort note."""

    messages: tuple[Message, ...]
    tools: tuple[dict[str, Any], ...] = ()
    thinking: bool = True
    effort: Effort | None = "max"
    tool_choice: ToolChoice = field(default_factory=ToolChoice)
    response_format: ResponseFormat = field(default_factory=ResponseFormat)

    @property
    def partial(self) -> bool:
        """Whether the model goes on with the last message instead of beginning a new one.

        See docs/format.md#partial.
        """
        return bool(self.messages) and self.messages[-1].partial

    @property
    def open_channel(self) -> Literal["think", "response"]:
        """The channel that the prompt ends in and the completion goes on in (docs/format.md#prompt-end)."""
        if not self.partial:
            return "think" if self.thinking else "response"
        last = self.messages[-1]
        return "think" if self.thinking and last.reasoning and not any(last.parts) else "response"

    @property
    def media(self) -> tuple[MediaPart, ...]:
        """All pictures and clips in the order of messages and parts.

        Tool results may stand in another order in the prompt (docs/format.md#tool-results); `MediaSlot.part`
        is an index into this.
        """
        return tuple(p for m in self.messages for p in m.parts if isinstance(p, MediaPart))

    @property
    def declared_tools(self) -> tuple[dict[str, Any], ...]:
        """Request tools, then dynamic ones in order."""
        return self.tools + tuple(t for m in self.messages for t in m.tools)
