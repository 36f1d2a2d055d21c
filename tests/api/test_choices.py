"""Several choices of one request, of different length. The engine is scripted; all else is real."""

import json
from collections.abc import Callable

from tests.api.conftest import END, END_THINK, Server, events_of
from tests.scripted import Script


async def test_a_choice_that_stops_early_does_not_end_the_others(
    server: Server, ids: Callable[[str], list[int]]
) -> None:
    """The first is cut at a stop string while the engine still writes all three."""
    texts = [
        f"a{END_THINK}one STOP never seen, however long it goes on{END}",
        f"bb{END_THINK}two, which goes on for longer{END}",
        f"c{END_THINK}3{END}",
    ]
    script = Script(choices=[ids(text) for text in texts], per_step=2)
    async with server(script) as live:
        whole = (await live.chat(n=3, stop=["STOP"])).json()
        streamed = events_of((await live.chat(n=3, stop=["STOP"], stream=True)).text)
    found = [(c["message"]["reasoning_content"], c["message"]["content"]) for c in whole["choices"]]
    assert found == [("a", "one "), ("bb", "two, which goes on for longer"), ("c", "3")]
    assert [c["finish_reason"] for c in whole["choices"]] == ["stop"] * 3
    assert streamed[-1] == "[DONE]"
    chunks = [json.loads(event)["choices"][0] for event in streamed[:-1]]
    for index, (reasoning, content) in enumerate(found):
        mine = [chunk for chunk in chunks if chunk["index"] == index]
        assert "".join(c["delta"].get("reasoning_content", "") for c in mine) == reasoning
        assert "".join(c["delta"].get("content", "") for c in mine) == content
        assert [c["finish_reason"] for c in mine] == [None] * (len(mine) - 1) + ["stop"]
    n_ids = [len(ids(text)) for text in texts]
    n_until_stop = len(ids(texts[0].partition(" never")[0]))
    n_counted = whole["usage"]["completion_tokens"]
    assert n_until_stop <= n_counted - n_ids[1] - n_ids[2] <= n_until_stop + script.per_step
