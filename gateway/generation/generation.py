"""One request under way: its prompt, how it is sampled, what it has been answered so far.

`Generations.begin` makes a `Generation` of a checked request; iterating over its `progress()` runs it. A wire
format turns each `Progress` into frames, or at the end the whole `Generation` into a body: both see the same
events and the same rule of how a reply ended.

`open`, `feed` and `close` are plain calls: `gateway.generation.pushing` drives a generation by them without a
task or a queue; `progress()` is the driver for what the engine cannot push.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import ExitStack, aclosing
from dataclasses import dataclass, field, replace

from engine.types import EngineClient, EngineError, Sampling, Step, TokenLogprob
from gateway.errors import ReplyUnusable, stopping, unusable_reply
from gateway.generation.counts import Counts, Outcome, Totals
from gateway.generation.engine_errors import as_request_error
from gateway.generation.logprobs import ContentLogprobs
from gateway.generation.notes import Notes
from gateway.generation.options import Request
from gateway.generation.rendering import Rendered, Renderer, refused
from gateway.generation.sampling import sampling
from gateway.prefix.prefixes import Run
from gateway.prefix.tenants import EVERYBODY, Tenant
from gateway.xtml import (
    CallIds,
    Conversation,
    ConversationError,
    Decoder,
    Ending,
    Event,
    Reply,
    failure_of,
    fold,
    structural_tag,
)


@dataclass(slots=True)
class Progress:
    """What one choice gained in a step.

    logprobs:    those of visible content
    stop_string: which of the request's ended the choice
    """

    index: int
    events: list[Event]
    logprobs: list[TokenLogprob] | None = None
    finish_reason: str | None = None
    stop_string: str | None = None


@dataclass(slots=True)
class Choice:
    """One completion of the prompt, and all that it has said so far.

    logprobs: those of visible content, where they were asked for
    ending:   set when it is complete
    """

    decoder: Decoder
    content_logprobs: ContentLogprobs | None
    events: list[Event]
    ids: list[int]
    logprobs: list[TokenLogprob] = field(default_factory=list)
    ending: Ending | None = None

    @property
    def finish_reason(self) -> str | None:
        """Set when it is complete."""
        return self.ending.finish_reason if self.ending is not None else None

    def reply(self) -> Reply:
        """All that was said, folded."""
        return fold(self.events)


class Generation:
    """A request under way. `notes` and `counts` are kept up to date while it runs.

    id:       of the request in the engine and in logs; replies derive theirs from it
    rendered: the prompt, its media and the conversation as it was rendered
    sampling: the engine's parameters
    """

    def __init__(
        self, generations: Generations, request: Request, rendered: Rendered, sampling: Sampling
    ) -> None:
        self.id = uuid.uuid4().hex[:24]
        self.request = request
        self.rendered = rendered
        self.sampling = sampling
        self.renderer = generations.renderer
        self.counts = Counts(
            n_prompt=self.renderer.n_prompt(rendered.prompt),
            n_image=rendered.n_image_tokens,
            n_video=rendered.n_video_tokens,
        )
        self.choices: list[Choice] = []
        self._generations = generations
        self._n_open = sampling.n
        self._run: Run | None = None
        self._held = ExitStack()

    @property
    def conversation(self) -> Conversation:
        return self.rendered.conversation

    @property
    def engine(self) -> EngineClient:
        return self._generations.engine

    @property
    def can_push(self) -> bool:
        """Whether the engine calls with each step (`gateway.generation.pushing`)."""
        return self.engine.can_push(self.sampling)

    @property
    def notes(self) -> Notes:
        return self.rendered.notes

    @property
    def repairs(self) -> Counter[str]:
        """Deviations from the format, over all choices."""
        return sum((choice.decoder.repairs for choice in self.choices), Counter())

    @property
    def done(self) -> bool:
        """Whether every choice is complete."""
        return self._n_open == 0

    async def progress(self) -> AsyncGenerator[Progress, None]:
        """Run it. Closing the generator aborts the request in the engine.

        Raises:
            RequestError: the engine refused or failed, the server is stopping, or nothing usable was said.
        """
        outcome: Outcome = "aborted"
        self.open()
        try:
            prompt = self.rendered.engine_prompt
            steps = self._generations.engine.generate(prompt, self.sampling, self.id)
            async with aclosing(steps):
                async for step in steps:
                    progress = self.feed(step)
                    if self.done:
                        outcome = "finished"
                    if progress is not None:
                        yield progress
                    if self.done:
                        return
        except EngineError as error:
            outcome = "failed"
            raise as_request_error(error) from error
        except ReplyUnusable:
            outcome = "failed"
            raise
        except (GeneratorExit, asyncio.CancelledError):
            raise
        except BaseException:
            outcome = "failed"
            raise
        finally:
            self.close(outcome)

    def open(self) -> None:
        """Choose a rank and count the request as running.

        Raises:
            Unavailable: the server is stopping.
        """
        generations, options = self._generations, self.request.options
        if generations.ending.is_set():
            raise stopping()
        run = self._held.enter_context(
            self.renderer.prefixes.running(
                self.rendered.tenant, self.rendered.written, options.cache_hint, self.sampling.n
            )
        )
        self._run = run
        wants_logprobs = self.sampling.logprobs is not None
        for index in range(self.sampling.n):
            logprobs = (
                ContentLogprobs(self.renderer.vocab, with_stop=bool(options.stop)) if wants_logprobs else None
            )
            self.choices.append(Choice(self._decoder(), logprobs, run.events[index], run.ids[index]))
        if generations.engine.info.n_data_parallel_ranks > 1:
            self.sampling = replace(self.sampling, data_parallel_rank=run.account.rank)
        generations.running[self.id] = self
        self._note_prefix(run)

    def feed(self, step: Step) -> Progress | None:
        """One step of the engine; None where it adds nothing (a choice that is complete already).

        Raises:
            RequestError: the engine gave up, the server is stopping, or nothing usable was said.
        """
        run, counts = self._run, self.counts
        assert run is not None  # `open` was called
        if run.account.n_cached is None:
            run.account.n_cached = step.n_cached or 0
            self._note_prefix(run)
        if step.n_cached:
            # The engine's prompt may be longer than the one that is counted, and so may what it found of it.
            counts.n_cached = min(max(counts.n_cached, step.n_cached), counts.n_prompt)
        choice = self.choices[step.index]
        if choice.ending is not None:
            return None  # cut at a stop string; the engine goes on until its siblings are done
        if step.finish_reason in ("abort", "error"):
            if self._generations.ending.is_set():
                raise stopping()
            raise EngineError("the engine gave up the reply before it was complete")
        decoder = choice.decoder
        counts.n_completion += len(step.token_ids)
        reasoning_before = decoder.n_reasoning
        events = decoder.feed(step.token_ids)
        finish = None
        if step.finish_reason is not None or decoder.stopped:
            events += decoder.finish(step.finish_reason or "stop")
            choice.ending = decoder.ending(
                step.finish_reason or "stop", may_be_empty=self._goes_on_with_content()
            )
            finish = choice.ending.finish_reason
            self._n_open -= 1
        logprobs = None
        if choice.content_logprobs is not None and step.logprobs is not None:
            all_out = finish is not None and decoder.stop_string is None
            logprobs = choice.content_logprobs.take(step.logprobs, decoder.channels, events, all_out=all_out)
            choice.logprobs += logprobs
        counts.n_reasoning += decoder.n_reasoning - reasoning_before
        choice.ids += step.token_ids
        choice.events += events
        if self.done:
            self._complete(run)
        return Progress(step.index, events, logprobs, finish, decoder.stop_string)

    def close(self, outcome: Outcome) -> None:
        """It runs no longer, however it ended."""
        if self._generations.running.pop(self.id, None) is not None:
            self._generations.totals.add(outcome, self.counts, self.repairs)
        self._held.close()

    def _complete(self, run: Run) -> None:
        """The last choice is whole. Runs before the client can see the end and send its next turn."""
        self.renderer.prefixes.finish(run)
        if repairs := self.repairs:
            self.notes["repairs"] = " ".join(f"{kind}={n}" for kind, n in sorted(repairs.items()) if n)
        if failure := failure_of(choice.ending for choice in self.choices if choice.ending is not None):
            raise unusable_reply(failure)

    def _goes_on_with_content(self) -> bool:
        """Whether the client wrote the beginning of the content (`partial`): there may be nothing to add."""
        conversation = self.conversation
        return conversation.partial and any(conversation.messages[-1].parts)

    def _note_prefix(self, run: Run) -> None:
        self.notes["prefix"] = run.account.header(self.counts.n_prompt)

    def _decoder(self) -> Decoder:
        conversation, options = self.conversation, self.request.options
        return Decoder(
            self.renderer.vocab,
            thinking=conversation.thinking,
            start=conversation.open_channel,
            tools=conversation.declared_tools,
            tool_choice=conversation.tool_choice,
            passes_faulty_calls=self.renderer.settings.faulty_calls == "pass",
            stop=options.stop,
            new_call_id=CallIds(self.renderer.settings.tool_call_ids, _history_ids(conversation)),
            max_calls=None if options.parallel_tool_calls else 1,
        )


class Generations:
    """Makes generations on one engine; no new ones once `ending` is set. `running`: by id."""

    def __init__(
        self, renderer: Renderer, engine: EngineClient, totals: Totals, ending: asyncio.Event
    ) -> None:
        self.renderer = renderer
        self.engine = engine
        self.totals = totals
        self.ending = ending
        self.running: dict[str, Generation] = {}

    async def begin(self, request: Request, tenant: Tenant = EVERYBODY) -> Generation:
        """Render the prompt and settle how to generate; nothing runs in the engine yet.

        Raises:
            InvalidRequest: names the field at fault.
            Unavailable: the media decoders are gone.
        """
        rendered = await self.renderer.render(request, tenant)
        conversation, options, vocab = rendered.conversation, request.options, self.renderer.vocab
        grammar = None
        try:
            if _may_force(conversation):
                grammar = await asyncio.to_thread(
                    structural_tag, conversation, vocab, parallel_tool_calls=options.parallel_tool_calls
                )
        except ConversationError as error:
            raise refused(error) from None
        if grammar is not None:
            rendered.notes.add("grammar-loosened", grammar.loosened)
        chosen = sampling(
            options,
            n_prompt=len(rendered.prompt.ids),
            has_tools=bool(conversation.declared_tools),
            structural_tag=grammar.tag if grammar else None,
            vocab=vocab,
            engine=self.engine.info,
            policy=self.renderer.settings.sampling_policy,
        )
        return Generation(self, request, rendered, chosen)

    async def end_all(self) -> None:
        """Abort every request in the engine; their clients get an error instead of a torn connection."""
        for request_id in list(self.running):
            await self.engine.abort(request_id)


def _may_force(conversation: Conversation) -> bool:
    """Whether a grammar may be needed; making one can take a while."""
    choice = conversation.tool_choice
    plain = conversation.response_format.type == "text" and choice.mode in ("auto", "none")
    return not plain or choice.allowed is not None or bool(conversation.declared_tools)


def _history_ids(conversation: Conversation) -> list[str]:
    """Tool-call ids the client already holds."""
    return [call.id for message in conversation.messages for call in message.tool_calls if call.id]
