"""Reads a Responses stream as a careful client does, and says what is wrong with it."""

from __future__ import annotations

import copy
from typing import Any, get_args

from openai.types.responses import ResponseStreamEvent

from tests.conformance.strict import problems

_EVENTS = {
    name: member
    for member in get_args(get_args(ResponseStreamEvent)[0])
    for name in get_args(member.model_fields["type"].annotation)
}
_ENDS = {
    "response.completed": "completed",
    "response.incomplete": "incomplete",
    "response.failed": "failed",
}
# Event type -> (field that grows in the item's last part, or in the item itself)
_ITEM_TEXTS = {
    "response.function_call_arguments": ("function_call", "arguments"),
    "response.custom_tool_call_input": ("custom_tool_call", "input"),
}
_PART_TEXTS = {
    "response.output_text": ("content", "output_text"),
    "response.reasoning_text": ("content", "reasoning_text"),
    "response.reasoning_summary_text": ("summary", "summary_text"),
}
# Known only when an item is done.
_LATE = ("status", "encrypted_content")


class ResponsesReader:
    """Feed it `(event, data)` frames; then look at `wrong` and `final`.

    wrong:  one sentence per fault
    seen:   event types in order, repeats in a row left out
    final:  the response of the last event
    """

    def __init__(self, stream: list[tuple[str | None, Any]]) -> None:
        self.wrong: list[str] = []
        self.seen: list[str] = []
        self.final: dict[str, Any] | None = None
        self._id = ""
        self._done: list[dict[str, Any]] = []
        self._item: dict[str, Any] | None = None
        self._part: dict[str, Any] | None = None
        self._text: str | None = None
        for number, (name, data) in enumerate(stream):
            self._feed(number, name, data)
        if self.final is None:
            self.wrong.append("the stream has no last event with a response")

    def _feed(self, number: int, name: str | None, data: dict[str, Any]) -> None:
        kind = data.get("type", "")
        if not self.seen or self.seen[-1] != kind:
            self.seen.append(kind)
        if kind not in _EVENTS:
            self.wrong.append(f"unknown event {kind!r}")
            return
        self.wrong += [f"{kind}: {p}" for p in problems(_EVENTS[kind], data)]
        self._expect(name == kind, f"the event line says {name!r}, the data {kind!r}")
        self._expect(
            data["sequence_number"] == number, f"{kind} is number {data['sequence_number']}, not {number}"
        )
        self._expect(self.final is None, f"{kind} after the end")
        if "response" in data:
            self._response(number, kind, data["response"])
        elif kind == "response.output_item.added":
            self._added(data)
        elif kind != "error":
            self._in_item(kind, data)

    def _response(self, number: int, kind: str, response: dict[str, Any]) -> None:
        if number == 0:
            self._expect(kind == "response.created", f"the first event is {kind}")
            self._id = response["id"]
        if number == 1:
            self._expect(kind == "response.in_progress", f"the second event is {kind}")
        self._expect(response["id"] == self._id, f"{kind} has id {response['id']}, not {self._id}")
        status = _ENDS.get(kind, "in_progress")
        self._expect(response["status"] == status, f"{kind} has status {response['status']}")
        if kind not in _ENDS:
            self._expect(kind != "response.created" or number == 0, "created twice")
            return
        self.final = response
        self._expect(self._item is None or kind == "response.failed", f"{kind} while an item is open")
        if kind != "response.failed":
            self._expect(response["output"] == self._done, f"{kind}: output is not the items that were done")

    def _added(self, data: dict[str, Any]) -> None:
        self._expect(self._item is None, "an item is added while another is open")
        self._expect(data["output_index"] == len(self._done), f"output_index {data['output_index']}")
        self._item = copy.deepcopy(data["item"])
        ids = [item["id"] for item in self._done]
        self._expect(self._item["id"] not in ids, "an item's id is used twice")
        for field in ("content", "summary"):
            self._expect(not self._item.get(field), f"an item is added with {field}")
        for field in ("arguments", "input"):
            self._expect(self._item.get(field, "") == "", f"an item is added with {field}")

    def _in_item(self, kind: str, data: dict[str, Any]) -> None:
        item = self._item
        if item is None:
            self.wrong.append(f"{kind} outside of an item")
            return
        self._expect(data["output_index"] == len(self._done), f"{kind}: output_index {data['output_index']}")
        if "item_id" in data:
            self._expect(data["item_id"] == item["id"], f"{kind}: item_id is not the open item's")
        stem, _, end = kind.rpartition(".")
        if kind == "response.output_item.done":
            self._item_done(data["item"])
        elif end in ("added", "done") and stem.endswith("_part"):
            self._part_event(kind, end, data)
        elif stem in _ITEM_TEXTS:
            of, field = _ITEM_TEXTS[stem]
            self._expect(item["type"] == of, f"{kind} in a {item['type']}")
            self._grow(kind, end, item, field, data)
        elif stem in _PART_TEXTS:
            _, of = _PART_TEXTS[stem]
            self._expect(self._part is not None and self._part["type"] == of, f"{kind} outside of its part")
            if self._part is not None:
                self._index(kind, data, len(item.get(_PART_TEXTS[stem][0]) or []))
                self._grow(kind, end, self._part, "text", data)
        else:
            self.wrong.append(f"{kind} is not expected here")

    def _part_event(self, kind: str, end: str, data: dict[str, Any]) -> None:
        assert self._item is not None
        field = "summary" if "summary" in kind else "content"
        self._index(kind, data, len(self._item.get(field) or []))
        if end == "added":
            self._expect(self._part is None, f"{kind} while a part is open")
            self._expect(data["part"]["text"] == "", f"{kind} with text")
            self._part = copy.deepcopy(data["part"])
            return
        self._expect(
            self._part is not None and data["part"]["text"] == self._part["text"], f"{kind}: other text"
        )
        self._item[field] = [*(self._item.get(field) or []), data["part"]]
        self._part = self._text = None

    def _grow(self, kind: str, end: str, place: dict[str, Any], field: str, data: dict[str, Any]) -> None:
        if end == "delta":
            self._expect(bool(data["delta"]), f"{kind}: an empty delta")
            place[field] = place.get(field, "") + data["delta"]
            return
        self._expect(data[field] == place.get(field, ""), f"{kind}: not what the deltas gave")

    def _item_done(self, item: dict[str, Any]) -> None:
        assert self._item is not None
        self._expect(self._part is None, "an item is done while a part is open")
        grown = {key: value for key, value in self._item.items() if key not in _LATE and value is not None}
        given = {key: value for key, value in item.items() if key not in _LATE and value is not None}
        self._expect(given == grown, f"the done item {given} is not what its events gave: {grown}")
        self._done.append(item)
        self._item = None

    def _index(self, kind: str, data: dict[str, Any], number: int) -> None:
        name = "summary_index" if "summary" in kind else "content_index"
        self._expect(data[name] == number, f"{kind}: {name} {data[name]}, not {number}")

    def _expect(self, good: bool, fault: str) -> None:
        if not good:
            self.wrong.append(fault)
