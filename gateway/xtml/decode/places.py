"""Where in a completion its reader may be, and what text is there (docs/format.md#completion)."""

from __future__ import annotations

from enum import Enum, auto
from typing import Literal

Channel = Literal["reasoning", "content", "tool", "other"]


class At(Enum):
    """The element whose body is being read."""

    THINK = auto()
    RESPONSE = auto()
    BETWEEN = auto()  # channels of the message
    TOOLS = auto()
    CALL = auto()
    ARGUMENT = auto()
    BLOCK = auto()  # a json body of a call
    ENDED = auto()  # behind the close of the message


CHANNELS: dict[At, Channel] = {
    At.THINK: "reasoning",
    At.RESPONSE: "content",
    At.ARGUMENT: "tool",
    At.BLOCK: "tool",
}
NAMES = {
    At.THINK: "think",
    At.RESPONSE: "response",
    At.BETWEEN: "message",
    At.TOOLS: "tools",
    At.CALL: "call",
    At.ARGUMENT: "argument",
    At.BLOCK: "json",
    At.ENDED: "message",
}
IN_CALL = (At.CALL, At.ARGUMENT, At.BLOCK)
IN_VALUE = (At.ARGUMENT, At.BLOCK)
IN_TOOLS = (At.TOOLS, *IN_CALL)
