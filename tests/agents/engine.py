"""An engine for agents: scripted answers as real K3 ids, and a prefix cache. It is not a model.

The service around it is the real one, over HTTP, and so are the agents.
"""

from __future__ import annotations

from dataclasses import replace

from engine.types import EnginePrompt, Sampling
from gateway.xtml import Vocab, encode_assistant
from tests.agents.prompt import declared_tools, read_prompt
from tests.agents.session import Session
from tests.prefix.cached_engine import CachedEngine
from tests.scripted import Script


class AgentEngine(CachedEngine):
    """Answers by a session's script."""

    def __init__(self, vocab: Vocab, session: Session, max_model_len: int) -> None:
        super().__init__(n_blocks=200_000)
        self.info = replace(self.info, max_model_len=max_model_len)
        self.vocab = vocab
        self.session = session

    def _answer(self, prompt: EnginePrompt, sampling: Sampling) -> Script:
        cached = super()._answer(prompt, sampling).n_cached
        messages = read_prompt(prompt.ids, self.vocab)
        tools = declared_tools(messages)
        message, is_turn = self.session.answer(messages, tools)
        if is_turn:
            self.session.turns.append((len(prompt.ids), cached))
        thinking = self.vocab.decode(prompt.ids[-8:]).endswith("think<|sep|>")
        ids = encode_assistant(message, self.vocab, thinking=thinking)
        return Script(ids, per_step=8, n_cached=cached)
