"""The lean way from the engine's outputs to whoever reads them: no queue, no task switch, no RequestOutput.

vLLM's ordinary way costs three wake-ups and several objects a token: a task reads the socket and fills a
queue, a second one makes a RequestOutput of each output and fills the request's queue, a third one reads
that. Here the socket's callback decodes a step and calls the receiver of each request in it.

Only plain outputs of requests that were pushed go this way; everything else (errors, utilities, statistics,
several choices, logprobs) is left to vLLM's tasks, which run as ever. Requests are known to vLLM's
OutputProcessor either way, so aborts, counts and the death of the engine are its business. What is used of
vLLM beside its public methods is named in `LeanOutputs`; where it is missing, or a request gives another
answer this way than the ordinary one (`probe` of `engine.client`), the ordinary way is taken for all.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, cast

from engine.sampling import to_step
from engine.types import EngineError, FinishReason, Step, StepReceiver

if TYPE_CHECKING:
    from vllm.outputs import RequestOutput
    from vllm.v1.engine import EngineCoreOutput, EngineCoreOutputs
    from vllm.v1.engine.async_llm import AsyncLLM

log = logging.getLogger(__name__)

# So many messages are read in one go; then the loop's other work has its turn.
_MESSAGES_AT_ONCE = 16


class Pushed:
    """One request's receiver, in the place of vLLM's queue for it (`RequestState.queue`).

    failed: called with what vLLM reports instead of outputs: a dead engine, or None for its bare "error"
    """

    __slots__ = ("failed", "n_cached", "receiver")

    def __init__(self, receiver: StepReceiver, failed: Callable[[Exception | None], None]) -> None:
        self.receiver = receiver
        self.failed = failed
        self.n_cached = 0

    def put(self, output: RequestOutput | Exception) -> None:
        """What did not go the lean way: called by vLLM's OutputProcessor for aborts and errors."""
        if isinstance(output, Exception):
            self.failed(output)
            return
        self.n_cached = output.num_cached_tokens or 0
        for completion in output.outputs:
            if completion.finish_reason == "error":
                self.failed(None)
            else:
                self.receiver.step(to_step(completion, None, self.n_cached))

    def close(self) -> None:
        """vLLM's queues have it."""


class Collected:
    """A receiver that collects; `done` gets all steps, or the error."""

    def __init__(self) -> None:
        self.done: asyncio.Future[list[Step]] = asyncio.get_running_loop().create_future()
        self._steps: list[Step] = []

    def step(self, step: Step) -> None:
        self._steps.append(step)
        if step.finish_reason is not None and not self.done.done():
            self.done.set_result(self._steps)

    def failed(self, error: EngineError) -> None:
        if not self.done.done():
            self.done.set_exception(error)


def summary(steps: Sequence[Step]) -> tuple[Any, ...]:
    """What steps come to, however the tokens were spread over them."""
    ids = tuple(id_ for step in steps for id_ in step.token_ids)
    last = steps[-1]
    return ids, last.finish_reason, last.stop_token_id, last.n_cached, {step.index for step in steps}


def lean_outputs(llm: AsyncLLM) -> LeanOutputs | None:
    """None, with a line in the log, where this vLLM or its settings do not allow it."""
    try:
        return LeanOutputs(llm)
    except (AttributeError, TypeError, ImportError) as error:
        log.warning("the lean output path is off: %s", error)
        return None


class LeanOutputs:
    """Reads the engine's outputs in vLLM's place. Create it in the event loop, before the first request.

    Raises AttributeError or TypeError where vLLM is not built as expected: `engine_core.outputs_queue`,
    `.decoder`, `.utility_results`, `.resources` (`output_socket`, `output_queue_task`, `validate_alive`),
    `output_processor.request_states`, `._finish_request`, `AsyncLLM._run_output_handler`.
    """

    def __init__(self, llm: AsyncLLM) -> None:
        from vllm.v1.engine import FinishReason as VllmReason
        from vllm.v1.engine.core_client import AsyncMPClient

        client = cast("Any", llm.engine_core)
        if not isinstance(client, AsyncMPClient) or client.resources.output_queue_task is not None:
            raise TypeError("the engine's outputs are read already")
        if llm.log_stats or llm.vllm_config.scheduler_config.stream_interval > 1:
            raise TypeError("statistics and stream intervals are kept by vLLM's own output handler")
        self._processor = llm.output_processor
        self._states: dict[str, Any] = llm.output_processor.request_states
        self._finish: Callable[[Any], None] = llm.output_processor._finish_request
        self._plain: dict[Any, FinishReason | None] = {
            None: None,
            VllmReason.STOP: "stop",
            VllmReason.LENGTH: "length",
        }
        self._rest: asyncio.Queue[Any] = client.outputs_queue
        client.outputs_queue = self
        parallel = llm.vllm_config.parallel_config
        special = parallel.enable_fault_tolerance or parallel.enable_elastic_ep
        self._socket: _OutputSocket | None = None
        if not special and not hasattr(type(client), "process_engine_outputs"):
            self._socket = _OutputSocket(client, self.put_nowait)
        # Else vLLM's own task reads, which starts with the first request; it too calls `put_nowait`.
        llm._run_output_handler()

    def close(self) -> None:
        """Read no more; before vLLM closes its socket."""
        if self._socket is not None:
            self._socket.close()

    # What vLLM's tasks use of an asyncio.Queue.

    def put_nowait(self, outputs: EngineCoreOutputs | Exception) -> None:
        """From whoever reads the socket."""
        if not isinstance(outputs, Exception):
            outputs.outputs = self._deliver(outputs.outputs)
            if not outputs.outputs and not outputs.scheduler_stats:
                return
        self._rest.put_nowait(outputs)

    async def get(self) -> EngineCoreOutputs | Exception:
        """To vLLM's output handler: what is left to it."""
        return await self._rest.get()

    def attach(self, queue: Any, pushed: Pushed) -> None:
        """From now on the request of `queue` (what AsyncLLM.add_request returned) goes to `pushed`."""
        state = self._states.get(queue.request_id)
        if state is not None:
            state.queue = pushed
        # What came while the request was being sent.
        if (output := queue.get_nowait()) is not None:
            pushed.put(output)

    def _deliver(self, outputs: Iterable[EngineCoreOutput]) -> list[EngineCoreOutput]:
        """Hand plain outputs of pushed requests over; returns the others."""
        states, plain = self._states, self._plain
        rest = []
        for output in outputs:
            state = states.get(output.request_id)
            reason = output.finish_reason
            if state is None:
                continue  # aborted; what was under way is of no use
            pushed = state.queue
            if type(pushed) is not Pushed or reason not in plain or output.kv_transfer_params is not None:
                rest.append(output)
                continue
            if state.is_prefilling:
                state.is_prefilling = False
                if output.prefill_stats is not None:
                    state.num_cached_tokens = pushed.n_cached = output.prefill_stats.num_cached_tokens
            ids = output.new_token_ids
            stop_token = None
            if reason is not None:
                self._finish(state)
                if plain[reason] == "stop":
                    named = output.stop_reason
                    stop_token = named if isinstance(named, int) else (ids[-1] if ids else None)
            try:
                pushed.receiver.step(Step(0, tuple(ids), None, plain[reason], stop_token, pushed.n_cached))
            except Exception:
                # A receiver answers for its own errors; one that does not must not stop the others.
                log.exception("request %s could not take its step", output.request_id)
        return rest


class _OutputSocket:
    """vLLM's output socket, read by the loop's own callback instead of a task (a fifth less CPU a step).

    ZeroMQ's descriptor says only that something has changed since it was last asked, so it is read until it
    is empty.
    """

    def __init__(self, client: Any, deliver: Callable[[Any], None]) -> None:
        import zmq
        from vllm.v1.engine.core_client import _process_utility_output

        self._resources = client.resources
        self._decode: Callable[[Any], Any] = client.decoder.decode
        self._utility_results = client.utility_results
        self._process_utility_output: Callable[[Any, Any], None] = _process_utility_output
        self._validate_alive: Callable[[Any], None] = client.resources.validate_alive
        self._deliver = deliver
        self._nothing_left = zmq.Again
        self._no_wait = zmq.NOBLOCK
        # The same socket without asyncio's layer.
        self._socket: zmq.Socket[bytes] = zmq.Socket.shadow(client.resources.output_socket.underlying)
        self._descriptor = int(self._socket.getsockopt(zmq.FD))
        self._loop = asyncio.get_running_loop()
        # In the place of vLLM's reading task, which so is never started; vLLM cancels it at the end.
        task: asyncio.Future[None] = self._loop.create_future()
        task.add_done_callback(self._cancelled)
        client.resources.output_queue_task = task
        self._open = True
        self._loop.add_reader(self._descriptor, self._readable)
        self._loop.call_soon(self._readable)

    def close(self) -> None:
        if self._open:
            self._open = False
            self._loop.remove_reader(self._descriptor)

    def _cancelled(self, _: asyncio.Future[None]) -> None:
        """vLLM ends its reading: the engine is gone. As its own task, tell whoever waits for outputs."""
        from vllm.v1.engine.exceptions import EngineDeadError

        if self._open:
            self.close()
            self._deliver(EngineDeadError())

    def _readable(self) -> None:
        try:
            for _ in range(_MESSAGES_AT_ONCE):
                if not self._open:
                    return
                try:
                    frames = self._socket.recv_multipart(self._no_wait, copy=False)
                except self._nothing_left:
                    return
                self._validate_alive(frames)
                outputs = self._decode(frames)
                if outputs.utility_output:
                    self._process_utility_output(outputs.utility_output, self._utility_results)
                elif outputs.outputs or outputs.scheduler_stats:
                    self._deliver(outputs)
            self._loop.call_soon(self._readable)
        except Exception as error:
            # As vLLM's own task: its output handler learns of it, and through it every request.
            self.close()
            self._deliver(error)
