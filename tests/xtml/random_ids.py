"""Random completions that look enough like real ones to reach every corner of the decoder."""

import random

from gateway.xtml import Vocab

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "f",
            "parameters": {
                "type": "object",
                "properties": {
                    "s": {"type": "string"},
                    "n": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
                    "o": {"$ref": "#/$defs/o"},
                },
                "required": ["s", "missing"],
                "$defs": {"o": {"type": "object", "properties": {"o": {"$ref": "#/$defs/o"}}}},
            },
        },
    },
    {"type": "function", "function": {"name": "g"}},
]
_PHRASES = [
    *["think", "response", "tools", "message", "call", "argument", "json", "thinking", "foo", " think "],
    *['call tool="f" index="1"', "call tool='g' index=2", 'call tool="nope"', "call", 'call tool="f'],
    *['argument key="s" type="string"', 'argument key="n" type="string"', 'argument key="o" type="object"'],
    *['argument key="x" type="number"', "argument key = s type = string", "argument", 'argument key="s'],
    *['json type="object"', '{"s": "v", "n": 1}', '{"a":1e2}', "{", "NaN", '{"a": -Infinity}', "200", "true"],
    *['"\\ud83d"', '{"s": "\\ude42", "n": 1e999}', "True", '{"s":"a\nb","s":2}', "\x00", '["\\ud83d"]'],
    *['{"\\ud83d": [None]}', 'message role="user"', "1e999", '{"o": {"n": "5"}, "n": "5"}', "\u2003"],
    *["[1, 2", "null", "9" * 4400, "[" * 1200, '"q"', "\\", '"', "\n", "   ", "hello world", "stop", "sto"],
    *[
        "<|open|>think<|sep|>",
        "<|close|>think<|sep|>",
        "<|open|>",
        "<|sep|>",
        "<|close|>think",
        "<|",
        "é城🙂",
    ],
]
_BLOCKS = [
    *["Cthink|", "Othink|", "Oresponse|", "Cresponse|", "Otools|", "Ctools|", "Cmessage|", "Ccall|"],
    *[
        'Omessage role="user"|',
        'Ocall tool="f" index="1"|',
        "Ojson|",
        "Oargument|",
        "Ccall|",
        'Oargument key="x" type="object"|',
    ],
    *['Ocall tool="f" index="1"|', 'Ocall tool="g" index="2"|', 'Ocall tool="h" index="1"|', "Cargument|"],
    *['Oargument key="s" type="string"|', 'Oargument key="n" type="string"|', "Ojson type='object'|"],
    *['Oargument key="o" type="object"|', "Cjson|", "C|", "Oresponse", "Cthink", "Ctools", "Ccall"],
]


class RandomIds:
    """Sequences of ids from one seeded generator."""

    def __init__(self, vocab: Vocab, seed: int, *, spelled_markers: bool = True) -> None:
        self.random = random.Random(seed)
        self.vocab = vocab
        markers = {"O": vocab.open, "C": vocab.close, "|": vocab.sep}
        phrases = _PHRASES if spelled_markers else [text for text in _PHRASES if "<|" not in text]
        self.phrases = [vocab.encode(phrase) for phrase in phrases]
        self.blocks = [self._block(text, markers) for text in _BLOCKS]
        self.markers = [*markers.values()] * 3 + [vocab.end_of_msg, vocab.media_pad, *vocab.stop_ids]

    def _block(self, text: str, markers: dict[str, int]) -> list[int]:
        closed = text.endswith("|")
        return [markers[text[0]], *self.vocab.encode(text[1:].rstrip("|")), *[markers["|"]] * closed]

    def one(self) -> list[int]:
        """Some blocks, phrases, lone markers and arbitrary ids (also ids that do not exist)."""
        ids: list[int] = []
        for _ in range(self.random.randrange(14)):
            match self.random.choices("bpmr", (10, 6, 2, 2))[0]:
                case "b":
                    ids += self.random.choice(self.blocks)
                case "p":
                    ids += self.random.choice(self.phrases)
                case "m":
                    ids.append(self.random.choice(self.markers))
                case _:
                    ids.append(self.random.choice((self._ordinary, self._any))())
        return ids

    def _ordinary(self) -> int:
        return self.random.randrange(self.vocab.n_ranks)

    def _any(self) -> int:
        return self.random.randrange(-1, self.vocab.size + 1)

    def options(self) -> dict[str, object]:
        """Arguments for a Decoder."""
        choose = self.random.choice
        return {
            "thinking": choose([True, True, False]),
            "tools": choose([TOOLS, TOOLS, []]),
            "stop": choose([(), (), ["stop"], ["lo w", "sto", "hello"]]),
            "max_calls": choose([None, None, 1]),
        }
