"""A generation as chat completion bodies and chunks, in the shape that strict clients want.

No key is null where it can be absent (docs/decisions.md#a29, #a30): only `content` of a whole message and
`finish_reason` of a chunk, which OpenAI's schema requires, may be null.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, Literal

from engine.types import TokenLogprob
from gateway.errors import RequestError
from gateway.generation.generation import Choice, Generation, Progress
from gateway.wire.sse import COMMENT, DONE, data_frame, encode_json
from gateway.xtml import (
    CallArguments,
    CallOpened,
    Content,
    Event,
    Reasoning,
    ReasoningClosed,
    ReasoningWasContent,
    Unparsed,
    Vocab,
)

Json = dict[str, Any]

# Stands for the text in templates of frames; a model's name that contains it does no harm, it comes before.
_MARK = "<text>"
_MARK_JSON = b'"<text>"'

# Extension field of a message (and of a delta): what the model wrote that is no part of the answer.
UNPARSED = "k3_unparsed"
# Extension field of a stream's last chunk: notes that came too late for a header (docs/reference/api.md).
LATE_NOTES = "k3_notes"


class ChatReplies:
    """Builds what one request is answered with. One id for all its chunks.

    reasoning_field: name of the thinking text; `both` adds `reasoning`
    """

    def __init__(self, generation: Generation, reasoning_field: Literal["reasoning_content", "both"]) -> None:
        self.generation = generation
        self.id = f"chatcmpl-{generation.id}"
        self.created = int(time.time())
        self.model = generation.request.model
        self._reasoning_too = reasoning_field == "both"

    def body(self) -> Json:
        """A `chat.completion` of the finished choices."""
        choices = [self._choice(index, choice) for index, choice in enumerate(self.generation.choices)]
        return {**self.head("chat.completion"), "choices": choices, "usage": self.usage()}

    def _choice(self, index: int, choice: Choice) -> Json:
        """One finished choice. `content` is null where there is none to expect: calls, or cut thinking."""
        reply = choice.reply()
        nothing = None if reply.tool_calls or choice.finish_reason == "length" else ""
        message: Json = {"role": "assistant", "content": reply.content or nothing}
        if self.generation.conversation.thinking:
            message |= self.reasoning(reply.reasoning)
        if reply.tool_calls:
            message["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for call in reply.tool_calls
            ]
        if reply.unparsed:
            message[UNPARSED] = [_unparsed(part) for part in reply.unparsed]
        whole: Json = {"index": index, "message": message, "finish_reason": choice.finish_reason}
        if self.generation.sampling.logprobs is not None:
            whole["logprobs"] = logprobs_object(choice.logprobs, self.generation.renderer.vocab)
        return whole

    def head(self, kind: Literal["chat.completion", "chat.completion.chunk"]) -> Json:
        """What every body and chunk begins with."""
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}

    def usage(self) -> Json:
        """Token counts; `cached_tokens` also where Moonshot's clients look (docs/decisions.md#c10)."""
        counts = self.generation.counts
        return {
            "prompt_tokens": counts.n_prompt,
            "completion_tokens": counts.n_completion,
            "total_tokens": counts.n_prompt + counts.n_completion,
            "cached_tokens": counts.n_cached,
            "prompt_tokens_details": {
                "cached_tokens": counts.n_cached,
                "image_tokens": counts.n_image,
                "video_tokens": counts.n_video,
            },
            "completion_tokens_details": {"reasoning_tokens": counts.n_reasoning},
        }

    def reasoning(self, text: str) -> Json:
        """The field or fields of thinking text."""
        if self._reasoning_too:
            return {"reasoning_content": text, "reasoning": text}
        return {"reasoning_content": text}


class ChatStream:
    """The chunks of a streamed reply (`gateway.wire.stream.ReplyStream`).

    include_usage:       a last chunk with the usage alone
    usage_in_all_chunks: every chunk carries the usage so far
    """

    def __init__(
        self, replies: ChatReplies, *, include_usage: bool = False, usage_in_all_chunks: bool = False
    ) -> None:
        self.replies = replies
        self.generation = replies.generation
        self._include_usage = include_usage
        self._usage_in_all_chunks = usage_in_all_chunks
        self._n_open = self.generation.sampling.n
        self._head = replies.head("chat.completion.chunk")
        self._last: bytes = b""
        self._text_frames = {} if usage_in_all_chunks else self._templates()

    def _templates(self) -> dict[tuple[type[Event], int], tuple[bytes, bytes]]:
        """What stands before and behind the text in a frame that has nothing else, by event and choice."""
        kinds: list[tuple[type[Event], str]] = [(Content, "content")]
        if len(self.replies.reasoning("")) == 1:
            kinds.append((Reasoning, "reasoning_content"))
        templates = {}
        for kind, key in kinds:
            for index in range(self._n_open):
                before, _, behind = self._frame(self._chunk(index, {key: _MARK})).rpartition(_MARK_JSON)
                templates[kind, index] = before, behind
        return templates

    def opening(self) -> bytes:
        """The first chunk of each choice."""
        delta = {"role": "assistant", "content": ""}
        return b"".join(self._frame(self._chunk(index, delta)) for index in range(self._n_open))

    def feed(self, progress: Progress) -> bytes:
        """The chunks of one step; the last one of a choice waits for `closing` if it is the reply's last."""
        events = progress.events
        if len(events) == 1 and progress.finish_reason is None and progress.logprobs is None:
            around = self._text_frames.get((type(events[0]), progress.index))
            if around is not None:  # nearly every step: one piece of text
                return around[0] + encode_json(events[0].text) + around[1]  # type: ignore[union-attr]
        frames = b"".join(map(self._frame, self.chunks(progress)))
        if progress.finish_reason is not None:
            self._n_open -= 1
            closing = self._closing(progress.index, progress.finish_reason)
            if self._n_open:
                return frames + closing
            self._last = closing
        return frames

    def closing(self) -> bytes:
        """The end: the last choice's end, usage if asked for, and the mark of the end."""
        usage = b""
        if self._include_usage:
            usage = data_frame({**self._head, "choices": [], "usage": self.replies.usage()})
        return self._last + usage + DONE

    def failed(self, error: RequestError, body: Json) -> bytes:
        """An error frame in place of the end (docs/decisions.md#g08)."""
        return data_frame(body)

    def keep_alive(self) -> bytes:
        """A comment (docs/decisions.md#a08)."""
        return COMMENT

    def chunks(self, progress: Progress) -> list[Json]:
        """The chunks of one step; logprobs go with its first content."""
        chunks = [
            self._chunk(progress.index, delta)
            for event in progress.events
            if (delta := self._delta(event)) is not None
        ]
        if progress.logprobs:
            carrier = next((c for c in chunks if c["choices"][0]["delta"].get("content")), None)
            if carrier is None:
                carrier = self._chunk(progress.index, {})
                chunks.append(carrier)
            vocab = self.generation.renderer.vocab
            carrier["choices"][0]["logprobs"] = logprobs_object(progress.logprobs, vocab)
        return chunks

    def _closing(self, index: int, finish_reason: str) -> bytes:
        """The last chunk of a choice: an empty delta. Moonshot's clients read usage in the last choice."""
        chunk = self._chunk(index, {}, finish_reason)
        if not self._n_open:
            chunk["choices"][0]["usage"] = self.replies.usage()
            if late := self.generation.notes.late():
                chunk[LATE_NOTES] = late
        return self._frame(chunk)

    def _frame(self, chunk: Json) -> bytes:
        if self._usage_in_all_chunks:
            return data_frame({**chunk, "usage": self.replies.usage()})
        return data_frame(chunk)

    def _chunk(self, index: int, delta: Json, finish_reason: str | None = None) -> Json:
        choice = {"index": index, "delta": delta, "finish_reason": finish_reason}
        return {**self._head, "choices": [choice]}

    def _delta(self, event: Event) -> Json | None:
        match event:
            case Content(text) | ReasoningWasContent(text):
                return {"content": text}
            case Reasoning(text):
                return self.replies.reasoning(text)
            case ReasoningClosed():
                # An explicit frame at the end of thinking (docs/decisions.md#a29).
                return {"content": ""}
            case CallOpened(index=index, id=id_, name=name):
                function = {"name": name, "arguments": ""}
                return {"tool_calls": [{"index": index, "id": id_, "type": "function", "function": function}]}
            case CallArguments(index, text):
                return {"tool_calls": [{"index": index, "function": {"arguments": text}}]}
            case Unparsed():
                return {UNPARSED: [_unparsed(event)]}
        return None


def logprobs_object(entries: Iterable[TokenLogprob], vocab: Vocab) -> Json:
    """OpenAI's logprobs object with tokens and bytes of our vocabulary."""
    content = []
    for entry in entries:
        top = [_token(id_, logprob, vocab) for id_, logprob in entry.top]
        content.append({**_token(entry.token_id, entry.logprob, vocab), "top_logprobs": top})
    return {"content": content, "refusal": None}


def _token(id_: int, logprob: float, vocab: Vocab) -> Json:
    """One token; one that is part of a character shows its bytes, and U+FFFD as text."""
    name = vocab.special_name(id_)
    data = name.encode() if name else vocab.token_bytes(id_)
    # JSON has no infinity; OpenAI documents -9999 for a token that is as good as impossible.
    return {"token": data.decode(errors="replace"), "logprob": max(logprob, -9999.0), "bytes": list(data)}


def _unparsed(part: Unparsed) -> Json:
    return {"text": part.text, "why": part.why}
