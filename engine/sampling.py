"""Between our sampling and steps and vLLM's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from engine.types import EngineRejected, FinishReason, Sampling, Step, TokenLogprob

if TYPE_CHECKING:
    from vllm.outputs import CompletionOutput
    from vllm.sampling_params import SamplingParams


def sampling_params(sampling: Sampling) -> SamplingParams:
    """vLLM's SamplingParams. Raises EngineRejected for values out of range."""
    from vllm.exceptions import VLLMClientError
    from vllm.sampling_params import RequestOutputKind, SamplingParams, StructuredOutputsParams

    tag = sampling.structural_tag
    try:
        return SamplingParams(
            n=sampling.n,
            max_tokens=sampling.max_tokens,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            min_p=sampling.min_p,
            presence_penalty=sampling.presence_penalty,
            frequency_penalty=sampling.frequency_penalty,
            repetition_penalty=sampling.repetition_penalty,
            seed=sampling.seed,
            logprobs=sampling.logprobs,
            logit_bias=dict(sampling.logit_bias) or None,
            stop_token_ids=list(sampling.stop_token_ids),
            ignore_eos=sampling.ignore_eos,
            structured_outputs=StructuredOutputsParams(structural_tag=tag) if tag is not None else None,
            skip_reading_prefix_cache=None if sampling.read_cache else True,
            detokenize=False,
            # Made for this one request, so vLLM need not copy it in depth.
            skip_clone=True,
            output_kind=RequestOutputKind.DELTA,
        )
    except (VLLMClientError, ValueError, TypeError) as error:
        raise EngineRejected(str(error)) from error


def to_step(completion: CompletionOutput, n_logprobs: int | None, n_cached: int | None) -> Step:
    """One completion's part of a RequestOutput. `n_cached`: prompt tokens read from the prefix cache."""
    ids = tuple(completion.token_ids)
    stop_token = None
    if completion.finish_reason == "stop":
        # vLLM names a stop token of the request, but not the model's own end token.
        reason = completion.stop_reason
        stop_token = reason if isinstance(reason, int) else (ids[-1] if ids else None)
    logprobs = None
    if n_logprobs is not None and completion.logprobs is not None:
        pairs = zip(ids, completion.logprobs, strict=True)
        logprobs = tuple(_token_logprob(token, position, n_logprobs) for token, position in pairs)
    return Step(
        index=completion.index,
        token_ids=ids,
        logprobs=logprobs,
        finish_reason=cast("FinishReason | None", completion.finish_reason),
        stop_token_id=stop_token,
        n_cached=n_cached,
    )


def _token_logprob(token: int, position: Mapping[int, Any], n_top: int) -> TokenLogprob:
    """`position` holds the sampled token and the `n_top` likeliest, each with its rank from 1."""
    best = sorted((entry.rank, candidate, entry.logprob) for candidate, entry in position.items())
    return TokenLogprob(
        token_id=token,
        logprob=position[token].logprob,
        top=tuple((candidate, logprob) for rank, candidate, logprob in best if rank <= n_top),
    )
