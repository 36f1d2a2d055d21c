"""KIMI_K3_NVFP4_PER_TOKEN: NVFP4 experts scale activations per token.

See docs/concepts/patches.md#kimi_k3_nvfp4_per_token.
"""

from __future__ import annotations

import inspect
from typing import Any

from patches.checkpoint import needs
from patches.patch import Finding, Part, Patch, wrap

SWITCH = "KIMI_K3_NVFP4_PER_TOKEN"
ENGINE_ARGUMENT: dict[str, Any] = {"quantization_config": {"moe": {"activation": "nvfp4_per_token"}}}


def is_engine_argument() -> bool:
    """Whether vLLM has the feature itself; forcing the flag there would skip its input-scale reset."""
    from vllm.model_executor.layers.quantization.modelopt import ModelOptNvFp4Config

    return "quantization_args" in inspect.signature(ModelOptNvFp4Config.__init__).parameters


def probe() -> Finding:
    from vllm.model_executor.layers.quantization import modelopt

    if is_engine_argument():
        return Finding("fixed", "the engine argument quantization_config.moe.activation has it")
    parameters = inspect.signature(modelopt.make_nvfp4_moe_kernel).parameters
    if "per_token_activation" not in parameters:
        return Finding("absent", "this release's NVFP4 kernel factory has no per-token activation")
    if parameters["per_token_activation"].default is True:
        return Finding("fixed", "ModelOpt's experts get per-token activation scales")
    return Finding("defect", "ModelOpt's experts never ask for the per-token activation that the factory has")


def apply() -> None:
    from vllm.model_executor.layers.quantization import modelopt

    def make(original: Any) -> Any:
        def make_kernel(*args: Any, per_token_activation: Any = True, **kwargs: Any) -> Any:
            return original(*args, per_token_activation=per_token_activation, **kwargs)

        parameters = inspect.signature(original).parameters
        make_kernel.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [
                p.replace(default=True) if name == "per_token_activation" else p
                for name, p in parameters.items()
            ]
        )
        return make_kernel

    # Only ModelOpt's own name: the factory's other users (online NVFP4) say what they want.
    wrap(modelopt, "make_nvfp4_moe_kernel", SWITCH, make)


PATCH = Patch(
    name="nvfp4-per-token",
    switch=SWITCH,
    fixes="Accuracy option: activations of NVFP4 experts get a scale per token (Blackwell, TRTLLM experts)",
    fixed_since="0.32.0",
    parts=(Part("factory", probe, apply),),
    excuse=needs("NVFP4"),
    opt_in=True,
)
