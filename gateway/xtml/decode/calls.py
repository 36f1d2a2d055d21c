"""The calls of one completion: which are shown, and their events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from gateway.xtml.decode.call_writer import CallWriter
from gateway.xtml.decode.events import CallArguments, CallClosed, CallOpened, Event, Unparsed, Why
from gateway.xtml.decode.toolschema import ToolSchema


class Calls:
    """Turns the parts of calls into events, which it gives to `emit`.

    A call that must not reach the client as one (undeclared tool, no calls allowed, after the tools
    channel) is read all the same, and shown as `Unparsed`. `n_closed` counts complete calls.
    """

    def __init__(
        self,
        tools: Mapping[str, ToolSchema],
        *,
        allowed: bool,
        new_call_id: Callable[[str], str],
        repairs: Counter[str],
        emit: Callable[[Event], None],
    ) -> None:
        self._tools = tools
        self._allowed = allowed and bool(tools)
        self._new_call_id = new_call_id
        self._repairs = repairs
        self._emit = emit
        self._call: CallWriter | None = None
        self._index = -1
        self.n_closed = 0

    @property
    def is_open(self) -> bool:
        return self._call is not None

    def begin(self, attributes: Mapping[str, str], *, ignored: bool) -> None:
        """A call's header is complete. `ignored`: the tools channel had ended before.

        See docs/decisions.md#d11.
        """
        name = attributes.get("tool", attributes.get("name", ""))
        if name not in self._tools and name.strip() in self._tools:
            name = name.strip()
        hidden: Why | None = None
        if ignored:
            hidden = "outside_channels"
            self._repairs["call_after_tools"] += 1
        elif not self._allowed:
            hidden = "call_not_allowed"
            self._repairs[hidden] += 1
        elif name not in self._tools:
            hidden = "undeclared_tool"
            self._repairs[hidden] += 1
        self._call = CallWriter(name, self._tools.get(name), self._repairs, hidden)
        if hidden is None:
            self._index += 1
            self._emit(CallOpened(self._index, self._new_call_id(name), name))

    def begin_argument(self, attributes: Mapping[str, str]) -> None:
        self._pass_on(self._open_call.open_argument(attributes.get("key"), attributes.get("type")))

    def value(self, text: str) -> None:
        """Text of an argument's value."""
        call = self._call
        assert call is not None
        written = call.value(text)
        if written and not call.hidden:
            self._emit(CallArguments(self._index, written))

    def end_argument(self) -> None:
        self._pass_on(self._open_call.close_argument())

    def block(self, text: str) -> None:
        """Text of a json block (docs/decisions.md#d10)."""
        self._open_call.block(text)

    def bare(self, text: str) -> None:
        """Text of the call that is in no argument or block."""
        self._open_call.bare(text)

    def close(self) -> None:
        """The open call is complete."""
        call = self._open_call
        self._call = None
        rest = call.close()
        if call.stray:
            self._emit(Unparsed(call.stray, "outside_channels"))
        if call.hidden:
            self._show(call, call.hidden)
        elif rest is None:
            self._repairs["invalid_arguments"] += 1
            self._show(call, "invalid_arguments")
        else:
            self._emit(CallArguments(self._index, rest))
            self._emit(CallClosed(self._index))
            self.n_closed += 1

    def cut(self) -> None:
        """The open call, if there is one, will not be completed: it must not be run."""
        if self._call is not None:
            self._repairs["cut_call"] += 1
            self._show(self._call, self._call.hidden or "cut_call")
            self._call = None

    @property
    def _open_call(self) -> CallWriter:
        assert self._call is not None
        return self._call

    def _pass_on(self, arguments: str) -> None:
        if arguments and not self._open_call.hidden:
            self._emit(CallArguments(self._index, arguments))

    def _show(self, call: CallWriter, why: Why) -> None:
        if text := call.shown():
            self._emit(Unparsed(text, why))
