"""Prompts as files that one can read: `golden/NAME.json` is a chat request, `golden/NAME.txt` its prompt.

In the text markers are spelled out, the same spelling typed by a user has a backslash (`<\\|close|>`), a run
of pads is one pad and its number, and a line break is added after each `<|end_of_msg|>`. `golden/index.json`
says of each what it shows, how many tokens it has in K3's own vocabulary, and of some the ids.

    python -m tests.xtml.golden_prompts

writes the texts anew, and the counts where K3's vocabulary is at hand. Look at the difference before
committing it: these files are the format.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
import pytest

from gateway.commands.render import marked_text
from gateway.xtml import Conversation, MediaPrompt, MediaSpan, Prompt, Vocab, encode, from_request
from tests.shared_data import shared
from tests.xtml.small_vocab import write_small_vocab

FOLDER = Path(__file__).parent / "golden"
INDEX = FOLDER / "index.json"


@dataclass(frozen=True)
class Golden:
    """One prompt. `facts` is its entry of the index.

    effort_note: false where the prompt is shown without the note on effort, for the sake of brevity
    media:       spans [lead, label, n_tokens] of each picture or clip
    """

    name: str
    facts: dict[str, Any]

    @property
    def request(self) -> dict[str, Any]:
        body: dict[str, Any] = json.loads((FOLDER / f"{self.name}.json").read_text())
        return body

    @property
    def text(self) -> str:
        return (FOLDER / f"{self.name}.txt").read_text()

    @property
    def media(self) -> list[MediaPrompt]:
        given: list[list[list[Any]]] = self.facts.get("media", [])
        return [MediaPrompt(tuple(MediaSpan(*span) for span in spans), repr(spans)) for spans in given]

    @property
    def conversation(self) -> Conversation:
        conversation = from_request(self.request)
        return conversation if self.facts["effort_note"] else replace(conversation, effort=None)

    def render(self, vocab: Vocab) -> Prompt:
        return encode(self.conversation, vocab, self.media)


def goldens() -> Iterator[Golden]:
    for name, facts in json.loads(INDEX.read_text()).items():
        yield Golden(name, facts)


def readable(prompt: Prompt, vocab: Vocab) -> str:
    """The prompt as the files have it."""
    return click.unstyle(marked_text(prompt, vocab)).replace("<|end_of_msg|>", "<|end_of_msg|>\n") + "\n"


def renew() -> None:
    try:
        real = Vocab.load(shared("tokenizer"))
    except pytest.skip.Exception as why:
        real = None
        print(f"counts are left as they are: {why}", file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        small = Vocab.load(write_small_vocab(Path(folder)))
    index: dict[str, dict[str, Any]] = {}
    for golden in goldens():
        (FOLDER / f"{golden.name}.txt").write_text(readable(golden.render(small), small))
        index[golden.name] = golden.facts
        if real is not None:
            prompt = golden.render(real)
            index[golden.name] |= {"n_tokens": len(prompt.ids), "prompt_tokens": prompt.n_hosted}
            if "ids" in golden.facts:
                index[golden.name]["ids"] = prompt.ids
    write_index(index)


def write_index(index: dict[str, dict[str, Any]]) -> None:
    """One line a field, so that differences can be read."""
    entries = []
    for name, facts in index.items():
        fields = ",\n".join(f'  "{key}": {json.dumps(value)}' for key, value in facts.items())
        entries.append(f' "{name}": {{\n{fields}\n }}')
    INDEX.write_text("{\n" + ",\n".join(entries) + "\n}\n")


if __name__ == "__main__":
    renew()
