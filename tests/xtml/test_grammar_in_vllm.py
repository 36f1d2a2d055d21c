"""vLLM takes the tags unchanged: its own check of a request, and its own compiling, without an engine."""

from typing import Any

import pytest

from gateway.xtml import Message, ToolCall, Vocab, encode_assistant, from_request
from gateway.xtml.grammar.structural_tag import structural_tag
from tests.xtml.schema_instances import ENFORCED

vllm = pytest.importorskip("vllm", reason="needs vLLM")


@pytest.fixture(scope="module")
def backend(small_vocab: Vocab) -> Any:
    """vLLM's xgrammar backend over a Hugging Face tokenizer with the ids of the small vocabulary."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast
    from transformers.convert_slow_tokenizer import bytes_to_unicode
    from vllm.config import VllmConfig
    from vllm.v1.structured_output.backend_xgrammar import XgrammarBackend

    letters = bytes_to_unicode()
    spelled = {"".join(letters[b] for b in small_vocab.token_bytes(i)): i for i in range(small_vocab.n_ranks)}
    tokenizer = Tokenizer(models.BPE(spelled, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    names = [small_vocab.special_name(i) or "" for i in range(small_vocab.n_ranks, small_vocab.size)]
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in names])
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="[EOS]")
    assert wrapped.convert_tokens_to_ids("<|close|>") == small_vocab.close
    return XgrammarBackend(VllmConfig(), tokenizer=wrapped, vocab_size=small_vocab.size)


WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "at": {"type": "string", "pattern": "^\\d+$"}},
            "required": ["city"],
        },
    },
}
BODIES = {
    "required": {"tools": [WEATHER], "tool_choice": "required"},
    "required without thinking": {"tools": [WEATHER], "tool_choice": "required", "reasoning_effort": "none"},
    "strict": {"tools": [{**WEATHER, "function": {**WEATHER["function"], "strict": True}}]},
    "json_object": {"response_format": {"type": "json_object"}, "tools": [WEATHER]},
}


@pytest.mark.parametrize("kind", BODIES)
def test_vllm_holds_a_completion_to_the_tag(backend: Any, small_vocab: Vocab, kind: str) -> None:
    from vllm import SamplingParams
    from vllm.sampling_params import StructuredOutputsParams
    from vllm.v1.structured_output.backend_types import StructuredOutputOptions
    from vllm.v1.structured_output.backend_xgrammar import validate_xgrammar_grammar
    from vllm.v1.structured_output.request import get_structured_output_key

    conversation = from_request({"messages": [{"role": "user", "content": "go"}]} | BODIES[kind])
    grammar = structural_tag(conversation, small_vocab)
    assert grammar is not None
    params = SamplingParams(structured_outputs=StructuredOutputsParams(structural_tag=grammar.tag))
    validate_xgrammar_grammar(params)
    option, spec = get_structured_output_key(params.structured_outputs)
    assert (option, spec) == (StructuredOutputOptions.STRUCTURAL_TAG, grammar.tag)

    def complete(*calls: ToolCall) -> list[int]:
        message = Message("assistant", ("",), reasoning="<|close|>", tool_calls=calls)
        return encode_assistant(message, small_vocab, thinking=conversation.thinking)

    good = complete(ToolCall(None, "get_weather", {"at": "12", "city": "<|close|>"}))
    held = backend.compile_grammar(option, spec, set(small_vocab.stop_ids))
    assert held.accept_tokens("request", good)
    assert held.is_terminated()
    bad = complete(ToolCall(None, "get_weather", {"at": "noon", "city": "x"}))
    held = backend.compile_grammar(option, spec, set(small_vocab.stop_ids))
    allowed = held.validate_tokens(bad)
    assert allowed == bad[: len(allowed)] and len(allowed) < len(bad)


@pytest.mark.parametrize("kind", ENFORCED)
def test_vllm_takes_every_kind_of_schema(small_vocab: Vocab, kind: str) -> None:
    from vllm import SamplingParams
    from vllm.sampling_params import StructuredOutputsParams, check_json_nesting
    from vllm.v1.structured_output.backend_xgrammar import validate_xgrammar_grammar

    tool = {"type": "function", "function": {"name": "f", "parameters": ENFORCED[kind]}}
    answer = {"type": "json_schema", "json_schema": {"name": "a", "schema": ENFORCED[kind]}}
    for body in ({"tools": [tool], "tool_choice": "required"}, {"response_format": answer}):
        conversation = from_request({"messages": [{"role": "user", "content": "go"}]} | body)
        grammar = structural_tag(conversation, small_vocab)
        assert grammar is not None
        check_json_nesting(grammar.tag, structural_tag=True)
        validate_xgrammar_grammar(
            SamplingParams(structured_outputs=StructuredOutputsParams(structural_tag=grammar.tag))
        )
