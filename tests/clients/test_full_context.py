"""A prompt that is too long, as clients report it: by the words and the code of the error."""

from __future__ import annotations

import asyncio
import os

import pytest

from tests.api.conftest import Server
from tests.scripted import Script

TOO_LONG = [{"role": "user", "content": "word " * 40_000}]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_litellm(server: Server, stream: bool) -> None:
    # litellm asks for a price list on import unless told to use its own copy.
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    litellm = await asyncio.to_thread(__import__, "litellm")
    async with server(Script([1])) as live:
        with pytest.raises(litellm.ContextWindowExceededError) as error:
            await litellm.acompletion(
                model="openai/kimi-k3",
                api_base=f"{live.url}/v1",
                api_key="none",
                messages=TOO_LONG,
                stream=stream,
            )
    assert "maximum context length is 32768 tokens" in str(error.value)


async def test_langchain(server: Server) -> None:
    from langchain_core.exceptions import ContextOverflowError
    from langchain_openai import ChatOpenAI

    async with server(Script([1])) as live:
        chat = ChatOpenAI(model="kimi-k3", base_url=f"{live.url}/v1", api_key="none")
        with pytest.raises(ContextOverflowError):
            await chat.ainvoke(TOO_LONG)
        with pytest.raises(ContextOverflowError):
            async for _ in chat.astream(TOO_LONG):
                pass
