"""The calls of one completion: which are shown, and their events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import NamedTuple

from gateway.xtml.conversation import ToolChoice
from gateway.xtml.decode.call_writer import CallWriter
from gateway.xtml.decode.events import CallArguments, CallClosed, CallOpened, Outbox, Unparsed, Why
from gateway.xtml.decode.toolschema import ToolSchema


class _Faulty(NamedTuple):
    """A complete call that a client cannot run. `valid`: its arguments are a JSON object all the same."""

    name: str
    shown: str
    arguments: str
    why: Why
    valid: bool


class Calls:
    """Turns the parts of calls into events, which it adds to `out`.

    A call is announced when it is certain that it becomes one if it is closed: with its first argument, or
    when it closes (docs/decisions.md#r2). A call that must not reach the client as one (undeclared tool,
    call not allowed, after the tools channel) is read all the same, and shown as `Unparsed`.

    n_closed:  complete calls
    left_open: a call was announced and then cut
    withheld:  something that the model wrote as a call is not one for the client
    """

    def __init__(
        self,
        tools: Mapping[str, ToolSchema],
        *,
        choice: ToolChoice,
        new_call_id: Callable[[str], str],
        repairs: Counter[str],
        out: Outbox,
    ) -> None:
        self._tools = tools
        self._choice = choice
        self._forced = choice.name if choice.mode == "named" else None
        self._new_call_id = new_call_id
        self._repairs = repairs
        self._out = out
        self._call: CallWriter | None = None
        self._index = -1  # of the last call that was announced
        self._announced = False  # the open call
        self._faulty: list[_Faulty] = []  # complete, and shown or passed at the end
        self.n_closed = 0
        self.left_open = self.withheld = False

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
        elif not self._tools or self._choice.mode == "none":
            hidden = "call_not_allowed"
        elif name not in self._tools:
            hidden = "undeclared_tool"
        elif self._is_ruled_out(name):
            hidden = "call_not_allowed"
        if hidden is not None:
            self._repairs["call_after_tools" if ignored else hidden] += 1
        self._call = CallWriter(name, self._tools.get(name), self._repairs, hidden)
        self._announced = False

    def _is_ruled_out(self, name: str) -> bool:
        """Whether the request's tool choice excludes this declared tool."""
        allowed = self._choice.allowed
        return (self._forced is not None and name != self._forced) or (
            allowed is not None and name not in allowed
        )

    def begin_argument(self, attributes: Mapping[str, str]) -> None:
        self._pass_on(self._open_call.open_argument(attributes.get("key"), attributes.get("type")))

    def value(self, text: str) -> None:
        """Text of an argument's value."""
        call = self._call
        assert call is not None
        written = call.value(text)
        if written and not call.hidden:
            self._out.events.append(CallArguments(self._index, written))

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
        rest = call.close()
        self._show_stray(call)
        if call.hidden is None and rest is not None:
            self._pass_on(rest)
            self._out.events.append(CallClosed(self._index))
            self.n_closed += 1
        else:
            if call.hidden is None:
                self._repairs["invalid_arguments"] += 1
            why = call.hidden or "invalid_arguments"
            faulty = _Faulty(call.name, call.shown(), call.raw_arguments(), why, rest is not None)
            if self._may_pass(faulty):
                self._faulty.append(faulty)
            else:
                self._show(faulty.shown, why)
        self._call = None

    def pass_faulty(self, limit: int | None) -> None:
        """Nothing else will come: the client gets the faulty calls, `limit` of them at most."""
        for call in self._faulty[:limit]:
            self._index += 1
            declared = call.why != "undeclared_tool"
            opened = CallOpened(self._index, self._new_call_id(call.name), call.name, declared, call.valid)
            self._out.events.append(opened)
            self._out.events.append(CallArguments(self._index, call.arguments))
            self._out.events.append(CallClosed(self._index))
            self.n_closed += 1
        self._faulty = self._faulty[limit:] if limit is not None else []
        self.show_faulty()

    def show_faulty(self) -> None:
        """The faulty calls that wait are no calls for the client."""
        for call in self._faulty:
            self._show(call.shown, call.why)
        self._faulty = []

    def cut(self) -> None:
        """The open call, if there is one, will not be completed: it must not be run."""
        if self._call is not None:
            self._repairs["cut_call"] += 1
            self.left_open = self.left_open or self._announced
            self._show_stray(self._call)
            self._show(self._call.shown(), self._call.hidden or "cut_call")
            self._call = None

    @property
    def _open_call(self) -> CallWriter:
        assert self._call is not None
        return self._call

    def _pass_on(self, arguments: str) -> None:
        """Arguments that the client may have: the call is one."""
        call = self._open_call
        if not arguments or call.hidden:
            return
        if not self._announced:
            self._announced = True
            self._index += 1
            self._out.events.append(CallOpened(self._index, self._new_call_id(call.name), call.name))
        self._out.events.append(CallArguments(self._index, arguments))

    def _may_pass(self, call: _Faulty) -> bool:
        """Whether an agent could answer the call. A forced choice of one tool wants that tool."""
        right = self._forced is None or call.name == self._forced
        return bool(call.name.strip()) and right and call.why in ("undeclared_tool", "invalid_arguments")

    def _show(self, text: str, why: Why) -> None:
        self.withheld = True
        if text:
            self._out.events.append(Unparsed(text, why))

    def _show_stray(self, call: CallWriter) -> None:
        if call.stray:
            self._out.events.append(Unparsed(call.stray, "outside_channels"))
