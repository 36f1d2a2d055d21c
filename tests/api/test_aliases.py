"""Other names for the model: who may ask for it by which, and what a name sets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gateway.settings import Settings, SettingsError, load_settings
from tests.api.conftest import END, END_THINK, Server, chat_body
from tests.scripted import Script

Ids = Callable[[str], list[int]]
ALIASES: Any = {"claude-*haiku*": {"thinking": False}, "gpt-*-mini": {"effort": "low"}, "gpt-*": {}}


@pytest.mark.parametrize(
    ("name", "effort"),
    [("gpt-5", "max"), ("GPT-5-mini", "low"), ("claude-haiku-4", "none"), ("kimi-k3", "max")],
)
async def test_an_alias_sets_effort_and_thinking_in_every_format(
    server: Server, ids: Ids, name: str, effort: str
) -> None:
    script = Script(ids(f"b{END}" if effort == "none" else f"a{END_THINK}b{END}"))
    user = {"role": "user", "content": "hi"}
    async with server(script, model_aliases=ALIASES) as live:
        replies = [
            await live.chat(model=name),
            await live.http.post("/v1/responses", json={"model": name, "input": [user]}),
            await live.http.post("/v1/messages", json={"model": name, "max_tokens": 9, "messages": [user]}),
        ]
        prompts = {tuple(prompt.ids) for prompt, _ in live.engine.requests}
        counted = await live.http.post("/v1/messages/count_tokens", json={"model": name, "messages": [user]})
    assert [reply.headers["k3-effort"] for reply in replies] == [effort] * 3
    assert [reply.json()["model"] for reply in replies] == [name] * 3
    assert len(prompts) == 1
    assert counted.json()["input_tokens"] == replies[0].json()["usage"]["prompt_tokens"]


async def test_a_name_that_no_pattern_matches_is_404(server: Server) -> None:
    async with server(Script([1]), model_aliases=ALIASES) as live:
        reply = await live.http.post("/v1/chat/completions", json=chat_body(model="llama"))
    assert reply.status_code == 404 and reply.json()["error"]["code"] == "model_not_found"


def test_the_setting_is_a_json_object_of_known_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("K3_MODEL_ALIASES", '{"gpt-*": {"effort": "low"}}')
    assert load_settings().model_aliases["gpt-*"].effort == "low"
    for wrong in ("gpt-*", '{"gpt-*": {"effort": "medium"}}', '{"gpt-*": {"speed": 1}}', "[1]"):
        monkeypatch.setenv("K3_MODEL_ALIASES", wrong)
        with pytest.raises(SettingsError, match="model_aliases"):
            load_settings()
    assert Settings.model_fields["model_aliases"].description
