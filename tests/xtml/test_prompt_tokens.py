"""Prompt token counts against those that Moonshot's own service reports."""

import json

from gateway.xtml import Vocab, encode, from_request
from tests.shared_data import shared


def test_prompt_tokens_equal_those_of_the_hosted_service(real_vocab: Vocab) -> None:
    cases = [json.loads(line) for line in shared("cases/prompt_tokens.jsonl").read_text().splitlines()]
    assert len(cases) > 20
    counted = {case["id"]: encode(from_request(case["request"]), real_vocab).n_hosted for case in cases}
    assert counted == {case["id"]: case["expected_prompt_tokens"] for case in cases}
