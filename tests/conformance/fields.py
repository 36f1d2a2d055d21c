"""What becomes of each request field that the SDKs' types have: one row a field.

used:    it has an effect, or is echoed
named:   accepted without effect, and the reply's header `k3-ignored` says its name
refused: 400 that names the field
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from tests.conformance import messages_cases, responses_cases


@dataclass(frozen=True)
class Field:
    """`value` is a well-formed example; `param` how it is named where that is not the field's name.

    needs: fields without which this one is refused
    """

    name: str
    value: Any
    treatment: Literal["used", "named", "refused"] = "used"
    param: str = ""
    needs: dict[str, Any] = field(default_factory=dict)


RESPONSES = [
    Field("access_programs", {"cyber": "standard"}, "named"),
    Field("background", True, "refused"),
    Field("background_options", {"completion_window": "soonest"}, "named"),
    Field("context_management", [{"type": "compaction", "compact_threshold": 100_000}], "named"),
    Field("conversation", "conv_1", "refused"),
    Field("image", {"context_compression": "auto"}, "named"),
    Field("include", ["reasoning.encrypted_content", "message.output_text.logprobs"]),
    Field("include", ["file_search_call.results"], "named"),
    Field("input", [{"role": "user", "content": [{"type": "input_text", "text": "hi"}]}]),
    Field("instructions", "Be brief."),
    Field("max_output_tokens", 500),
    Field("max_tool_calls", 3, "named"),
    Field("metadata", {"a": "b"}),
    Field("model", "kimi-k3"),
    Field("moderation", {"model": "omni-moderation-latest"}, "named"),
    Field("parallel_tool_calls", True),
    Field("previous_response_id", "resp_gone", "refused"),  # 404; a known one is in the store's tests
    Field("prompt", {"id": "pmpt_1"}, "refused"),
    Field("prompt_cache_key", "agent-1"),
    Field("prompt_cache_options", {"mode": "implicit"}, "named"),
    Field("prompt_cache_retention", "24h", "named"),
    Field("reasoning", {"effort": "low", "summary": "auto"}),
    Field("safety_identifier", "someone"),
    Field("service_tier", "auto", "named"),
    Field("store", False),
    Field("stream", True),
    Field("stream_options", {"include_obfuscation": True}, "named"),
    Field("temperature", 0.5),
    Field("text", {"format": {"type": "json_object"}}),
    Field("text", {"verbosity": "low"}, "named", "text.verbosity"),
    Field("tool_choice", "auto"),
    Field("tools", [responses_cases.WEATHER]),
    Field("top_logprobs", 2, needs={"include": ["message.output_text.logprobs"]}),
    Field("top_p", 0.9),
    Field("truncation", "auto", "named"),
    Field("user", "someone"),
]

MESSAGES = [
    Field("cache_control", {"type": "ephemeral"}, "named"),
    Field("container", "container_1", "named"),
    Field("diagnostics", {"previous_message_id": None}, "named"),
    Field("inference_geo", "us", "named"),
    Field("max_tokens", 500),
    Field("messages", [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]),
    Field("metadata", {"user_id": "someone"}),
    Field("model", "kimi-k3"),
    Field("output_config", {"effort": "low"}),
    Field("service_tier", "auto", "named"),
    Field("speed", "standard", "named"),
    Field("stop_sequences", ["END"]),
    Field("stream", True),
    Field("system", [{"type": "text", "text": "Be brief."}]),
    Field("temperature", 0.5),
    Field("thinking", {"type": "enabled", "budget_tokens": 2000}),
    Field("tool_choice", {"type": "auto"}),
    Field("tools", [messages_cases.WEATHER]),
    Field("top_k", 20),
    Field("top_p", 0.9),
    Field("user_profile_id", "profile_1", "named"),
    Field("workspace_id", "workspace_1", "named"),
]

# What only the beta form has. `betas` goes out as the header anthropic-beta.
BETA = [
    Field("billing_policy", {"type": "standard"}, "named"),
    Field("compaction", {"type": "enabled"}, "named"),
    Field("context_management", {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}),
    Field("fallback_credit_token", "token", "named"),
    Field("fallbacks", "default", "named"),
    Field("mcp_servers", [{"type": "url", "name": "m", "url": "https://example.com"}], "named"),
    Field("thread", {"type": "create"}, "refused"),
]
