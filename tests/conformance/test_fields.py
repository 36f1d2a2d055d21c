"""No field of the SDKs' request types is forgotten: each is used, named as ignored, or refused by name."""

from __future__ import annotations

from typing import Any

import pytest
from anthropic.types import message_create_params as plain
from anthropic.types.beta import message_create_params as beta
from openai.types.responses import response_create_params as responses

from tests.api.conftest import END, END_THINK, Server
from tests.conformance.fields import BETA, MESSAGES, RESPONSES, Field
from tests.scripted import Script

ASKS: dict[str, dict[str, Any]] = {
    "/v1/responses": {"model": "kimi-k3", "input": "hi"},
    "/v1/messages": {"model": "kimi-k3", "max_tokens": 100, "messages": [{"role": "user", "content": "hi"}]},
}
ROWS = [("/v1/responses", field) for field in RESPONSES] + [
    ("/v1/messages", field) for field in (*MESSAGES, *BETA)
]


def names_of(*kinds: Any) -> set[str]:
    """The fields of request types, inherited ones too; header fields of the SDK's methods left out."""
    return {name for kind in kinds for name in kind.__annotations__}


def test_every_field_has_a_row() -> None:
    wanted = names_of(responses.ResponseCreateParamsBase, responses.ResponseCreateParamsStreaming)
    assert {field.name for field in RESPONSES} == wanted
    wanted = names_of(plain.MessageCreateParamsBase, plain.MessageCreateParamsStreaming)
    assert {field.name for field in MESSAGES} | {"top_k", "top_p", "temperature"} >= wanted
    of_beta = names_of(beta.MessageCreateParamsBase, beta.MessageCreateParamsStreaming) - {"betas"}
    assert {field.name for field in (*MESSAGES, *BETA)} >= of_beta


@pytest.mark.parametrize(("path", "field"), ROWS, ids=[f"{path}:{field.name}" for path, field in ROWS])
async def test_what_becomes_of_a_field(server: Server, ids: Any, path: str, field: Field) -> None:
    name = field.param or field.name
    async with server(Script(ids(f'why{END_THINK}{{"a":1}}{END}'), per_step=4)) as live:
        answer = await live.http.post(path, json={**ASKS[path], **field.needs, field.name: field.value})
    # An entry may say more in brackets.
    ignored = [entry.split(" (")[0] for entry in answer.headers.get("k3-ignored", "").split(", ")]
    if field.treatment == "refused":
        assert answer.status_code in (400, 404), answer.text
        error = answer.json()["error"]
        # Anthropic's errors have no place for the field but the message.
        assert error["param"] == name if "param" in error else name in error["message"]
    else:
        assert answer.status_code == 200, answer.text
        assert (name in ignored) == (field.treatment == "named"), ignored
