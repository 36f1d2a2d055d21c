"""A generation as OpenAI's responses and their events (docs/reference/api.md#responses).

The items of a response are built from decoded events by one machine, `OutputItems`, which gives the frames of
a stream on the way; so the stream's items and those of its final response are the same objects.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from engine.types import TokenLogprob
from gateway.errors import ContextOverflow, LimitReached, RequestError
from gateway.generation.generation import Generation, Progress
from gateway.schema.responses import ResponsesRequest
from gateway.wire.chat.replies import logprobs_object
from gateway.wire.responses.items import OutputItems
from gateway.xtml import (
    CallArguments,
    CallClosed,
    CallOpened,
    Content,
    Event,
    Reasoning,
    Reply,
    ToolOrigin,
)

Json = dict[str, Any]


class ResponsesReplies:
    """Builds what one Responses request is answered with. One id for all its events."""

    def __init__(
        self,
        generation: Generation,
        body: ResponsesRequest,
        origins: Mapping[str, ToolOrigin],
        *,
        wants_summary: bool,
        is_stored: bool,
    ) -> None:
        self.generation = generation
        self.id = f"resp_{generation.id}"
        self.items = OutputItems(origins, wants_summary=wants_summary, seals=self._wants_seal(body))
        self._fixed: Json = {
            "id": self.id,
            "object": "response",
            "created_at": int(time.time()),
            "background": False,
            "instructions": body.instructions,
            "max_output_tokens": body.max_output_tokens,
            "max_tool_calls": body.max_tool_calls,
            "metadata": body.metadata or {},
            "model": generation.request.model,
            "parallel_tool_calls": body.parallel_tool_calls is not False,
            "previous_response_id": body.previous_response_id,
            "prompt_cache_key": body.prompt_cache_key,
            "reasoning": self._reasoning(body),
            "safety_identifier": body.safety_identifier,
            "service_tier": "default",
            "store": is_stored,
            "temperature": generation.sampling.temperature,
            "text": {"format": {"type": "text"}, **(body.text or {})},
            "tool_choice": body.tool_choice or "auto",
            "tools": [_strictness_said(tool) for tool in body.tools or ()],
            "top_logprobs": body.top_logprobs or 0,
            "top_p": generation.sampling.top_p,
            "truncation": "disabled",
            "user": body.user,
        }

    def body(self) -> Json:
        """The whole response of a generation that ended without a stream."""
        choice = self.generation.choices[0]
        for event in _events_of(choice.reply()):
            self.items.take(event)
        if choice.logprobs:
            self.items.set_logprobs(self.logprobs(choice.logprobs))
        self.items.end(self.item_status())
        return self.final()

    def item_status(self) -> str:
        """Of the last item: a reply that is cut leaves it incomplete."""
        return "incomplete" if self.generation.choices[0].finish_reason == "length" else "completed"

    def final(self) -> Json:
        """The response at its end."""
        choice = self.generation.choices[0]
        cut = choice.finish_reason == "length"
        response = self.response("incomplete" if cut else "completed", self.items.finished, self.usage())
        response["incomplete_details"] = {"reason": "max_output_tokens"} if cut else None
        response["completed_at"] = None if cut else int(time.time())
        if unparsed := choice.reply().unparsed:
            response["k3_unparsed"] = [{"text": part.text, "why": part.why} for part in unparsed]
        return response

    def response(self, status: str, output: list[Json], usage: Json | None = None) -> Json:
        """The response object, the request's fields echoed."""
        return {
            **self._fixed,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "output": output,
            "usage": usage,
        }

    def usage(self) -> Json:
        """Token counts."""
        counts = self.generation.counts
        return {
            "input_tokens": counts.n_prompt,
            "input_tokens_details": {"cached_tokens": counts.n_cached, "cache_write_tokens": 0},
            "output_tokens": counts.n_completion,
            "output_tokens_details": {"reasoning_tokens": counts.n_reasoning},
            "total_tokens": counts.n_prompt + counts.n_completion,
        }

    def logprobs(self, entries: Iterable[TokenLogprob]) -> list[Json]:
        """Entries of visible text, as an output text has them."""
        found: list[Json] = logprobs_object(entries, self.generation.renderer.vocab)["content"]
        return found

    def _reasoning(self, body: ResponsesRequest) -> Json:
        asked = body.reasoning or {}
        conversation = self.generation.conversation
        used = (conversation.effort or "max") if conversation.thinking else "none"
        return {"effort": asked.get("effort") or used, "summary": asked.get("summary")}

    @staticmethod
    def _wants_seal(body: ResponsesRequest) -> bool:
        return "reasoning.encrypted_content" in (body.include or ()) or body.store is False


class ResponsesStream:
    """The events of a streamed response (`gateway.wire.stream.ReplyStream`).

    keep: is given the whole response before its client can see the end
    """

    def __init__(self, replies: ResponsesReplies, keep: Callable[[Json], None]) -> None:
        self.replies = replies
        self._keep = keep
        self.frames = replies.items.frames

    def opening(self) -> bytes:
        """`response.created` and `response.in_progress`."""
        begun = self.replies.response("in_progress", [])
        return self.frames.event("response.created", {"response": begun}) + self.keep_alive()

    def feed(self, progress: Progress) -> bytes:
        """The events of one step; logprobs go with its first text."""
        logprobs = self.replies.logprobs(progress.logprobs) if progress.logprobs else None
        found = b""
        for event in progress.events:
            if logprobs and isinstance(event, Content):
                found += self.replies.items.take(event, logprobs)
                logprobs = None
            else:
                found += self.replies.items.take(event)
        return found

    def closing(self) -> bytes:
        """The last item's end, and the whole response."""
        items = self.replies.items.end(self.replies.item_status())
        response = self.replies.final()
        self._keep(response)
        if late := self.replies.generation.notes.late():
            response = {**response, "k3_notes": late}
        return items + self.frames.event(f"response.{response['status']}", {"response": response})

    def failed(self, error: RequestError, body: Json) -> bytes:
        """`response.failed` with a code that agents act on."""
        response = self.replies.response("failed", self.replies.items.finished, self.replies.usage())
        response["error"] = {"code": error_code(error), "message": error_message(error)}
        return self.frames.event("response.failed", {"response": response})

    def keep_alive(self) -> bytes:
        """A real event, since comments do not count for the idle limit of agents."""
        return self.frames.event(
            "response.in_progress", {"response": self.replies.response("in_progress", [])}
        )


def error_code(error: RequestError) -> str:
    """The codes that Codex acts on; `server_error` for all else, since the API's type has a list of codes."""
    if isinstance(error, ContextOverflow):
        return "context_length_exceeded"
    return "rate_limit_exceeded" if isinstance(error, LimitReached) else "server_error"


def error_message(error: RequestError) -> str:
    """The message; of a limit with the words in which agents look for the time to wait."""
    if isinstance(error, LimitReached):
        return f"{error.message}. Please try again in {error.retry_after:g}s."
    return error.message


def _events_of(reply: Reply) -> list[Event]:
    """The events that a whole reply is, in K3's order."""
    events: list[Event] = []
    if reply.reasoning:
        events.append(Reasoning(reply.reasoning))
    if reply.content:
        events.append(Content(reply.content))
    for index, call in enumerate(reply.tool_calls):
        events += [
            CallOpened(index, call.id, call.name),
            CallArguments(index, call.arguments),
            CallClosed(index),
        ]
    return events


def _strictness_said(tool: Json) -> Json:
    """The SDK's type of a function tool requires `strict` and `parameters`."""
    if tool.get("type") != "function":
        return tool
    return {"strict": None, "parameters": None, **tool}
