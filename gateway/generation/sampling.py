"""From a request's sampling fields to the engine's, by the policy the operator chose.

See docs/format.md#sampling.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from engine.types import EngineInfo, Sampling
from gateway.errors import ContextOverflow, bad_request
from gateway.generation.options import Options
from gateway.xtml import Vocab

Policy = Literal["free", "clamp", "strict"]

# Moonshot's own default and ceiling for one reply (docs/decisions.md#b17).
DEFAULT_MAX_TOKENS = 131_072
# What the model card recommends, and what its makers' API accepts (docs/format.md#sampling).
TEMPERATURE = 1.0
TOP_P = 0.95
TOP_P_WITH_TOOLS = 1.0


def sampling(
    options: Options,
    *,
    n_prompt: int,
    has_tools: bool,
    structural_tag: str | None,
    vocab: Vocab,
    engine: EngineInfo,
    policy: Policy,
) -> Sampling:
    """The engine's sampling for a prompt of `n_prompt` ids.

    The token budget is `max_tokens`, else Moonshot's default, and never more than the context has left.

    Raises:
        InvalidRequest: the prompt fills the context, the policy refuses a value, or this engine cannot
            honour a field.
    """
    room = engine.max_model_len - n_prompt
    if room < 1:
        raise ContextOverflow(n_prompt, engine.max_model_len)
    budget = options.max_tokens or DEFAULT_MAX_TOKENS
    wanted = Sampling(
        max_tokens=min(budget, room),
        temperature=TEMPERATURE if options.temperature is None else options.temperature,
        top_p=options.top_p or (TOP_P_WITH_TOOLS if has_tools else TOP_P),
        top_k=max(options.top_k or 0, 0),
        min_p=options.min_p or 0.0,
        presence_penalty=options.presence_penalty or 0.0,
        frequency_penalty=options.frequency_penalty or 0.0,
        repetition_penalty=options.repetition_penalty or 1.0,
        seed=options.seed,
        n=options.n,
        logprobs=options.top_logprobs,
        logit_bias=_logit_bias(options, vocab, engine),
        stop_token_ids=tuple(sorted(vocab.stop_ids)),
        structural_tag=structural_tag,
        priority=options.priority,
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
        _refuse_untuned(options)
    return wanted


def _refuse_untuned(options: Options) -> None:
    """What Moonshot's contract demands of a vendor (docs/format.md#sampling, docs/decisions.md#r14)."""
    allowed: dict[str, tuple[float | None, ...]] = {
        "temperature": (None, 0.0, 0.6, 1.0),
        "top_p": (None, TOP_P, TOP_P_WITH_TOOLS),
        "top_k": (None, 0, -1),
        "min_p": (None, 0.0),
        "presence_penalty": (None, 0.0),
        "frequency_penalty": (None, 0.0),
        "repetition_penalty": (None, 1.0),
        "n": (None, 1),
    }
    for name, values in allowed.items():
        value = getattr(options, name)
        if value not in values:
            best = " or ".join(f"{v:g}" for v in values if v is not None)
            raise bad_request(f"{name} is {value:g}; this endpoint only takes {best} for K3", name)
    if len(options.stop) > 5 or any(len(s.encode()) > 32 for s in options.stop):
        raise bad_request("stop takes at most 5 strings of at most 32 bytes", "stop")


def _logit_bias(options: Options, vocab: Vocab, engine: EngineInfo) -> dict[int, float]:
    """`logit_bias` with its keys as ids."""
    bias: dict[int, float] = {}
    if options.logit_bias and engine.speculative:
        raise bad_request("logit_bias cannot be used while the engine decodes speculatively", "logit_bias")
    for key, value in options.logit_bias.items():
        # The length first: Python refuses to read numbers of thousands of digits.
        if len(key) > 20 or not key.isascii() or not key.isdigit() or int(key) >= vocab.size:
            raise bad_request(
                f"logit_bias: {key[:40]!r} is not a token id; ids go from 0 to {vocab.size - 1}", "logit_bias"
            )
        bias[int(key)] = value
    return bias
