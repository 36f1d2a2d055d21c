"""One chat request from its body to decoded events; HTTP ends at this border."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, replace

from engine.types import EngineClient, EngineError, Sampling, TokenLogprob
from gateway.content_logprobs import ContentLogprobs
from gateway.errors import bad_request, stopping
from gateway.metrics import Totals
from gateway.prefix.prefixes import Run
from gateway.prefix.tenants import EVERYBODY, Tenant
from gateway.rendering import Rendered, Renderer
from gateway.sampling import check_agreement, sampling
from gateway.schema.chat import ChatRequest
from gateway.xtml import CallIds, Conversation, ConversationError, Decoder, Event, structural_tag


@dataclass(slots=True)
class Prepared:
    """A request that is ready for the engine."""

    rendered: Rendered
    sampling: Sampling


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
class Counts:
    """Token counts of a running request, over all choices."""

    n_cached: int = 0
    n_completion: int = 0
    n_reasoning: int = 0


class Completions:
    """Runs chat requests on one engine; no new ones once `ending` is set."""

    def __init__(
        self, renderer: Renderer, engine: EngineClient, totals: Totals, ending: asyncio.Event
    ) -> None:
        self.renderer = renderer
        self.engine = engine
        self.totals = totals
        self._ending = ending
        self._running: set[str] = set()

    async def end_all(self) -> None:
        """Abort every request in the engine; their clients get an error instead of a torn connection."""
        for request_id in list(self._running):
            await self.engine.abort(request_id)

    async def prepare(self, request: ChatRequest, tenant: Tenant = EVERYBODY) -> Prepared:
        """Render the prompt and settle how to generate.

        Raises:
            ApiError: 400 that names the field at fault.
        """
        check_agreement(request)
        rendered = await self.renderer.render(request, tenant)
        vocab = self.renderer.vocab
        try:
            grammar = await asyncio.to_thread(
                structural_tag,
                rendered.conversation,
                vocab,
                parallel_tool_calls=request.parallel_tool_calls is not False,
            )
        except ConversationError as error:
            raise bad_request(error.message, error.param) from None
        if grammar is not None and grammar.loosened:
            rendered.headers["k3-grammar-loosened"] = "; ".join(grammar.loosened)[:1000]
        return Prepared(
            rendered,
            sampling(
                request,
                n_prompt=len(rendered.prompt.ids),
                has_tools=bool(rendered.conversation.declared_tools),
                structural_tag=grammar.tag if grammar else None,
                vocab=vocab,
                engine=self.engine.info,
                policy=self.renderer.settings.sampling_policy,
            ),
        )

    async def run(
        self, prepared: Prepared, request: ChatRequest, request_id: str, counts: Counts
    ) -> AsyncGenerator[Progress, None]:
        """Yield decoded progress of every choice; `counts` is kept up to date while it runs.

        Closing the generator aborts the request in the engine.
        Raises engine.types.EngineError and its subclasses, and ApiError 503 once the server is ending.
        """
        if self._ending.is_set():
            raise stopping()
        decoders = [self._decoder(prepared, request) for _ in range(prepared.sampling.n)]
        content_logprobs = [
            ContentLogprobs(self.renderer.vocab, with_stop=bool(request.stop_strings)) for _ in decoders
        ]
        open_choices = set(range(len(decoders)))
        prefixes, rendered = self.renderer.prefixes, prepared.rendered
        n_prompt = self.renderer.n_prompt(rendered.prompt)
        with (
            self.totals.counting(n_prompt, counts, decoders),
            self._known(request_id),
            prefixes.running(
                rendered.tenant, rendered.written, request.prompt_cache_key, len(decoders)
            ) as run,
        ):
            self._show_prefix(rendered, run)
            steps = self.engine.generate(
                rendered.engine_prompt, self._on_rank(prepared.sampling, run), request_id
            )
            async with aclosing(steps):
                async for step in steps:
                    if run.account.n_cached is None:
                        run.account.n_cached = step.n_cached or 0
                        self._show_prefix(rendered, run)
                    counts.n_cached = max(counts.n_cached, step.n_cached or 0)
                    if step.index not in open_choices:
                        continue  # cut at a stop string; the engine goes on until its siblings are done
                    if step.finish_reason in ("abort", "error"):
                        if self._ending.is_set():
                            raise stopping()
                        raise EngineError("the engine gave up the reply before it was complete")
                    decoder = decoders[step.index]
                    counts.n_completion += len(step.token_ids)
                    events = decoder.feed(step.token_ids)
                    finish = None
                    if step.finish_reason is not None or decoder.stopped:
                        events += decoder.finish(step.finish_reason or "stop")
                        finish = decoder.finish_reason(step.finish_reason or "stop")
                        open_choices.discard(step.index)
                    logprobs = None
                    if step.logprobs is not None:
                        all_out = finish is not None and decoder.stop_string is None
                        logprobs = content_logprobs[step.index].take(
                            step.logprobs, decoder.channels, events, all_out=all_out
                        )
                    counts.n_reasoning = sum(d.n_reasoning for d in decoders)
                    run.written_by_model(step.index, step.token_ids, events)
                    if not open_choices:
                        # Before the client can see the end and send its next turn.
                        prefixes.finish(run)
                    yield Progress(step.index, events, logprobs, finish, decoder.stop_string)
                    if not open_choices:
                        return

    @contextmanager
    def _known(self, request_id: str) -> Iterator[None]:
        self._running.add(request_id)
        try:
            yield
        finally:
            self._running.discard(request_id)

    def _on_rank(self, sampling: Sampling, run: Run) -> Sampling:
        if self.engine.info.n_data_parallel_ranks == 1:
            return sampling
        return replace(sampling, data_parallel_rank=run.account.rank)

    def _show_prefix(self, rendered: Rendered, run: Run) -> None:
        rendered.headers["k3-prefix"] = run.account.header(self.renderer.n_prompt(rendered.prompt))

    def _decoder(self, prepared: Prepared, request: ChatRequest) -> Decoder:
        conversation = prepared.rendered.conversation
        return Decoder(
            self.renderer.vocab,
            thinking=conversation.thinking,
            start=conversation.open_channel,
            tools=conversation.declared_tools,
            tool_choice=conversation.tool_choice,
            stop=request.stop_strings,
            new_call_id=CallIds(self.renderer.settings.tool_call_ids, _history_ids(conversation)),
            max_calls=1 if request.parallel_tool_calls is False else None,
        )


def _history_ids(conversation: Conversation) -> list[str]:
    """Tool-call ids the client already holds."""
    return [call.id for message in conversation.messages for call in message.tool_calls if call.id]
