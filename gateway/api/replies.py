"""Decoded events as chat completion bodies and chunks, in the shape that strict clients want.

No key is null where it can be absent (docs/decisions.md#a29, #a30): only `content` of a whole message and
`finish_reason` of a chunk, which OpenAI's schema requires, may be null.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from engine.types import TokenLogprob
from gateway.completion import Counts, Progress
from gateway.rendering import Rendered, Renderer
from gateway.xtml import (
    CallArguments,
    CallOpened,
    Content,
    Event,
    Reasoning,
    ReasoningClosed,
    ReasoningWasContent,
    Reply,
    Unparsed,
)

Json = dict[str, Any]

# Extension field of a message (and of a delta): what the model wrote that is not part of the answer.
UNPARSED = "k3_unparsed"


class Replies:
    """Builds what one request is answered with. One id for all its chunks."""

    def __init__(self, renderer: Renderer, rendered: Rendered) -> None:
        self.id = f"chatcmpl-{uuid.uuid4().hex[:24]}"
        self.created = int(time.time())
        self.model = renderer.settings.served_model_name[0]
        self.renderer = renderer
        self.rendered = rendered

    # -- whole replies

    def body(self, choices: Sequence[Json], counts: Counts) -> Json:
        """A `chat.completion` of finished choices."""
        return {**self._head("chat.completion"), "choices": list(choices), "usage": self.usage(counts)}

    def choice(
        self, index: int, reply: Reply, finish_reason: str, logprobs: Iterable[TokenLogprob] | None
    ) -> Json:
        """One finished choice. `content` is null where there is none to expect: calls, or cut thinking."""
        nothing = None if reply.tool_calls or finish_reason == "length" else ""
        message: Json = {"role": "assistant", "content": reply.content or nothing}
        if self.rendered.conversation.thinking:
            message |= self._reasoning(reply.reasoning)
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
        choice: Json = {"index": index, "message": message, "finish_reason": finish_reason}
        if logprobs is not None:
            choice["logprobs"] = self._logprobs(logprobs)
        return choice

    # -- streams

    def opening(self, index: int) -> Json:
        """The first chunk of a choice."""
        return self._chunk(index, {"role": "assistant", "content": ""})

    def chunks(self, progress: Progress) -> list[Json]:
        """The chunks of one step; neighbouring events of a step share a delta where a delta can hold both."""
        deltas: list[Json] = []
        for event in progress.events:
            if (delta := self._delta(event)) is not None:
                deltas.append(delta)
        chunks = [self._chunk(progress.index, delta) for delta in deltas]
        if progress.logprobs:
            carrier = next((c for c in chunks if c["choices"][0]["delta"].get("content")), None)
            if carrier is None:
                carrier = self._chunk(progress.index, {})
                chunks.append(carrier)
            carrier["choices"][0]["logprobs"] = self._logprobs(progress.logprobs)
        return chunks

    def closing(self, index: int, finish_reason: str, usage: Json | None) -> Json:
        """The last chunk of a choice: an empty delta. Moonshot's clients read usage in the last choice."""
        chunk = self._chunk(index, {}, finish_reason)
        if usage is not None:
            chunk["choices"][0]["usage"] = usage
        return chunk

    def usage_chunk(self, counts: Counts) -> Json:
        """The final chunk of `stream_options.include_usage`."""
        return {**self._head("chat.completion.chunk"), "choices": [], "usage": self.usage(counts)}

    def usage(self, counts: Counts) -> Json:
        """Token counts; `cached_tokens` also where Moonshot's clients look (docs/decisions.md#c10)."""
        n_prompt = self.renderer.n_prompt(self.rendered.prompt)
        cached = min(counts.n_cached, n_prompt)
        return {
            "prompt_tokens": n_prompt,
            "completion_tokens": counts.n_completion,
            "total_tokens": n_prompt + counts.n_completion,
            "cached_tokens": cached,
            "prompt_tokens_details": {
                "cached_tokens": cached,
                "image_tokens": self.rendered.n_image_tokens,
                "video_tokens": self.rendered.n_video_tokens,
            },
            "completion_tokens_details": {"reasoning_tokens": counts.n_reasoning},
        }

    # -- parts

    def _head(self, kind: Literal["chat.completion", "chat.completion.chunk"]) -> Json:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}

    def _chunk(self, index: int, delta: Json, finish_reason: str | None = None) -> Json:
        choice = {"index": index, "delta": delta, "finish_reason": finish_reason}
        return {**self._head("chat.completion.chunk"), "choices": [choice]}

    def _delta(self, event: Event) -> Json | None:
        match event:
            case Content(text) | ReasoningWasContent(text):
                return {"content": text}
            case Reasoning(text):
                return self._reasoning(text)
            case ReasoningClosed():
                # An explicit frame at the end of thinking (docs/decisions.md#a29).
                return {"content": ""}
            case CallOpened(index, id_, name):
                function = {"name": name, "arguments": ""}
                return {"tool_calls": [{"index": index, "id": id_, "type": "function", "function": function}]}
            case CallArguments(index, text):
                return {"tool_calls": [{"index": index, "function": {"arguments": text}}]}
            case Unparsed():
                return {UNPARSED: [_unparsed(event)]}
        return None

    def _reasoning(self, text: str) -> Json:
        if self.renderer.settings.reasoning_field == "both":
            return {"reasoning_content": text, "reasoning": text}
        return {"reasoning_content": text}

    def _logprobs(self, entries: Iterable[TokenLogprob]) -> Json:
        """OpenAI's logprobs object with tokens and bytes of our vocabulary."""
        content = []
        for entry in entries:
            top = [self._token(id_, logprob) for id_, logprob in entry.top]
            content.append({**self._token(entry.token_id, entry.logprob), "top_logprobs": top})
        return {"content": content, "refusal": None}

    def _token(self, id_: int, logprob: float) -> Json:
        """One token; one that is part of a character shows its bytes, and U+FFFD as text."""
        name = self.renderer.vocab.special_name(id_)
        data = name.encode() if name else self.renderer.vocab.token_bytes(id_)
        # JSON has no infinity; OpenAI documents -9999 for a token that is as good as impossible.
        return {
            "token": data.decode(errors="replace"),
            "logprob": max(logprob, -9999.0),
            "bytes": list(data),
        }


def header_values(headers: Mapping[str, str]) -> dict[str, str]:
    """Headers whose values may quote the request: what HTTP does not take there is escaped as in Python."""
    return {name: value.encode("unicode_escape").decode() for name, value in headers.items()}


def _unparsed(part: Unparsed) -> Json:
    return {"text": part.text, "why": part.why}
