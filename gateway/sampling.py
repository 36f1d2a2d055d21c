"""From a request's sampling fields to the engine's, by the policy the operator chose.

See docs/format.md#sampling.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from engine.types import EngineInfo, Sampling
from gateway.errors import bad_request
from gateway.schema.chat import ChatRequest
from gateway.xtml import Vocab

Policy = Literal["free", "clamp", "strict"]

# Moonshot's own default and ceiling for one reply (docs/decisions.md#b17).
DEFAULT_MAX_TOKENS = 131_072
# What the model card recommends, and what its makers' API accepts (docs/format.md#sampling).
TEMPERATURE = 1.0
TOP_P = 0.95
TOP_P_WITH_TOOLS = 1.0


def check_agreement(request: ChatRequest) -> None:
    """Refuse fields that contradict each other.

    Raises:
        ApiError: 400 naming the field.
    """
    if request.stream_options is not None and not request.stream:
        raise bad_request("stream_options is only allowed when stream is true", "stream_options")
    if request.top_logprobs and not request.logprobs:
        raise bad_request("top_logprobs needs logprobs to be true", "top_logprobs")


def sampling(
    request: ChatRequest,
    *,
    n_prompt: int,
    has_tools: bool,
    structural_tag: str | None,
    vocab: Vocab,
    engine: EngineInfo,
    policy: Policy,
) -> Sampling:
    """The engine's sampling for a prompt of `n_prompt` ids.

    The token budget is `max_completion_tokens`, else `max_tokens`, else Moonshot's default, and never more
    than the context has left.

    Raises:
        ApiError: 400 for a prompt that fills the context, a value the policy refuses, or a field that this
            engine cannot honour.
    """
    room = engine.max_model_len - n_prompt
    if room < 1:
        raise bad_request(
            f"The prompt has {n_prompt} tokens; the context holds {engine.max_model_len} with the reply. "
            "Shorten the messages, drop pictures or start a new conversation.",
            "messages",
            "context_length_exceeded",
        )
    budget = request.max_completion_tokens or request.max_tokens or DEFAULT_MAX_TOKENS
    wanted = Sampling(
        max_tokens=min(budget, room),
        temperature=TEMPERATURE if request.temperature is None else request.temperature,
        top_p=request.top_p or (TOP_P_WITH_TOOLS if has_tools else TOP_P),
        top_k=max(request.top_k or 0, 0),
        min_p=request.min_p or 0.0,
        presence_penalty=request.presence_penalty or 0.0,
        frequency_penalty=request.frequency_penalty or 0.0,
        repetition_penalty=request.repetition_penalty or 1.0,
        seed=request.seed,
        n=request.n or 1,
        logprobs=(request.top_logprobs or 0) if request.logprobs else None,
        logit_bias=_logit_bias(request, vocab, engine),
        stop_token_ids=tuple(sorted(vocab.stop_ids)),
        structural_tag=structural_tag,
        priority=request.priority or 0,
    )
    if wanted.min_p and engine.speculative:
        raise bad_request("min_p cannot be used while the engine decodes speculatively", "min_p")
    if policy == "clamp":
        return replace(
            wanted,
            temperature=TEMPERATURE,
            top_p=TOP_P_WITH_TOOLS if has_tools else TOP_P,
            top_k=0,
            min_p=0.0,
            presence_penalty=0.0,
            frequency_penalty=0.0,
            repetition_penalty=1.0,
        )
    if policy == "strict":
        _refuse_untuned(request)
    return wanted


def _refuse_untuned(request: ChatRequest) -> None:
    """What Moonshot's contract demands of a vendor (docs/format.md#sampling)."""
    allowed: dict[str, tuple[float | None, ...]] = {
        "temperature": (None, 1.0),
        "top_p": (None, TOP_P, TOP_P_WITH_TOOLS),
        "top_k": (None, 0, -1),
        "min_p": (None, 0.0),
        "presence_penalty": (None, 0.0),
        "frequency_penalty": (None, 0.0),
        "repetition_penalty": (None, 1.0),
        "n": (None, 1),
    }
    for name, values in allowed.items():
        value = getattr(request, name)
        if value not in values:
            best = " or ".join(f"{v:g}" for v in values if v is not None)
            raise bad_request(f"{name} is {value:g}; this endpoint only takes {best} for K3", name)
    if len(request.stop_strings) > 5 or any(len(s.encode()) > 32 for s in request.stop_strings):
        raise bad_request("stop takes at most 5 strings of at most 32 bytes", "stop")


def _logit_bias(request: ChatRequest, vocab: Vocab, engine: EngineInfo) -> dict[int, float]:
    """`logit_bias` with its keys as ids."""
    bias: dict[int, float] = {}
    if request.logit_bias and engine.speculative:
        raise bad_request("logit_bias cannot be used while the engine decodes speculatively", "logit_bias")
    for key, value in (request.logit_bias or {}).items():
        # The length first: Python refuses to read numbers of thousands of digits.
        if len(key) > 20 or not key.isascii() or not key.isdigit() or int(key) >= vocab.size:
            raise bad_request(
                f"logit_bias: {key[:40]!r} is not a token id; ids go from 0 to {vocab.size - 1}", "logit_bias"
            )
        bias[int(key)] = value
    return bias
