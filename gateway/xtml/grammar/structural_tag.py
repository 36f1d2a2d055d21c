"""The structural tag of a request that forces structure: what the completion may be, token by token.

The tag spans the whole message, from the channel in which the prompt ends to the message's close, so the
wrapper tokens are legal at every place and no detector of the end of thinking is needed
(docs/format.md#constrained):

    [REASONING <|close|>think<|sep|> <|open|>response<|sep|>] TEXT or JSON <|close|>response<|sep|>
    [<|open|>tools<|sep|> CALL+ <|close|>tools<|sep|>] <|close|>message<|sep|>

after which only a stop id may come. Markers are token ids, never strings: text that only looks like a marker
is text, in thinking, in content and inside values.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from threading import Lock
from typing import Any

from cachetools import LRUCache, cached

from gateway.xtml.conversation import Conversation, ConversationError
from gateway.xtml.grammar.calls import CallableTool, Marks, calls_grammar
from gateway.xtml.grammar.cost import Budget
from gateway.xtml.grammar.json_values import AnyJson, JsonValues
from gateway.xtml.grammar.regex import Text
from gateway.xtml.grammar.rules import Rules, regex_rules
from gateway.xtml.grammar.schema import Shapes
from gateway.xtml.vocabulary import Vocab

_MAX_KEPT = 32 * 2**20  # characters of calls' grammars that are kept, and as many of answers' grammars

Format = dict[str, Any]  # one element of xgrammar's structural tags


@dataclass(frozen=True, slots=True)
class Grammar:
    """`tag`: a structural tag as JSON text, for `Sampling.structural_tag`.

    `loosened`: each rule of the request's schemas that the tag does not enforce, as `place: what`.
    """

    tag: str
    loosened: tuple[str, ...] = ()


def load_compiler() -> None:
    """Import what compiles schemas and patterns; it takes seconds, which a server spends before it serves.

    Programs that only encode or decode never need it, so nothing imports it by itself.
    """
    regex_rules("a")


def structural_tag(
    conversation: Conversation,
    vocab: Vocab,
    *,
    parallel_tool_calls: bool = True,
    inert_special_tokens: bool = True,
) -> Grammar | None:
    """The grammar of the next message, None where the request forces nothing.

    Something is forced by `tool_choice` required, named, or among some tools, a tool with `strict: true`,
    `parallel_tool_calls` false beside tools, and a JSON `response_format`. Where there is a grammar, calls
    are of declared tools and their arguments follow the schemas, save those of a tool with `strict: false`.

    `inert_special_tokens`: the engine's tokenizer spells special tokens with a byte that no text has, as the
    one of this service does. False for a tokenizer that spells them by their names, such as a Hugging Face
    one; text under a rule then leaves out the spelling of the close marker
    (docs/concepts/grammar.md#markers).

    Raises ConversationError (param `tool_choice`) if a call is forced and no such tool is declared.
    """
    choice = conversation.tool_choice
    declared = [] if choice.mode == "none" else _declared(conversation)
    forced = choice.mode in ("required", "named")
    as_json = conversation.response_format.type != "text"
    strict = any(tool["function"].get("strict") is True for _, tool in declared)
    some = choice.allowed is not None
    if not (forced or as_json or strict or some or (declared and not parallel_tool_calls)):
        return None
    if choice.mode == "named":
        declared = [(path, tool) for path, tool in declared if tool["function"].get("name") == choice.name]
    if choice.allowed is not None:
        declared = [(path, tool) for path, tool in declared if tool["function"].get("name") in choice.allowed]
    if forced and not declared:
        wanted = f"the tool {choice.name!r}" if choice.mode == "named" else "a tool"
        raise ConversationError(f"a call is forced, but {wanted} is not declared", "tool_choice")

    marks = Marks(vocab.open, vocab.close, vocab.sep, tuple(range(vocab.n_ranks, vocab.size)))
    message = _Message(marks)
    loosened: list[str] = []
    tools = answer = None
    if declared:
        key = json.dumps(declared, separators=(",", ":"))
        text: Text = "raw" if inert_special_tokens else "spelled"
        calls, not_enforced = _calls(key, marks, parallel_tool_calls, text)
        loosened += not_enforced
        tools = message.channel("tools", {"type": "grammar", "grammar": calls})
    if as_json and _continues_content(conversation):
        loosened.append("response_format: not enforced, the client wrote the beginning of the content")
    elif as_json:
        json_grammar, not_enforced = _answer(_answer_schema(conversation))
        loosened += not_enforced
        answer = {"type": "grammar", "grammar": json_grammar}
    body = message.body(tools, answer, must_call=forced)
    before = message.thinking() if _starts_thinking(conversation) else []
    tag = {"type": "structural_tag", "format": _sequence(*before, *body, *message.close("message"))}
    return Grammar(json.dumps(tag, separators=(",", ":")), tuple(loosened))


class _Message:
    """Elements of the message around values."""

    def __init__(self, marks: Marks) -> None:
        self._marks = marks
        self.text: Format = {"type": "any_tokens", "exclude_tokens": list(marks.special)}

    def open(self, name: str) -> list[Format]:
        return [_token(self._marks.open), _exactly(name), _token(self._marks.sep)]

    def close(self, name: str) -> list[Format]:
        return [_token(self._marks.close), _exactly(name), _token(self._marks.sep)]

    def channel(self, name: str, content: Format) -> Format:
        return _sequence(*self.open(name), content, *self.close(name))

    def thinking(self) -> list[Format]:
        """What comes before the response's text where the prompt ends in the thinking channel."""
        return [self.text, *self.close("think"), *self.open("response")]

    def body(self, tools: Format | None, answer: Format | None, *, must_call: bool) -> list[Format]:
        """From the response's text to the close of the tools channel. `answer` None: free text."""
        end = self.close("response")
        if tools is None:
            return [answer or self.text, *end]
        if answer is None:
            return [self.text, *end, tools if must_call else {"type": "optional", "content": tools}]
        if must_call:
            return [{"type": "optional", "content": answer}, *end, tools]
        # The answer is JSON, or there is none because tools are called.
        return [{"type": "or", "elements": [_sequence(answer, *end), _sequence(*end, tools)]}]


def _token(token_id: int) -> Format:
    return {"type": "token", "token": token_id}


def _exactly(text: str) -> Format:
    return {"type": "const_string", "value": text}


def _sequence(*elements: Format) -> Format:
    return {"type": "sequence", "elements": list(elements)}


def _declared(conversation: Conversation) -> list[tuple[str, dict[str, Any]]]:
    """Tools with the place of their declaration: the request's own, then dynamic ones."""
    own = [(f"tools[{i}]", tool) for i, tool in enumerate(conversation.tools)]
    return own + [
        (f"messages[{m}].tools[{i}]", tool)
        for m, message in enumerate(conversation.messages)
        for i, tool in enumerate(message.tools)
    ]


def _size(result: tuple[str, tuple[str, ...]]) -> int:
    return len(result[0]) + sum(map(len, result[1]))


@cached(LRUCache(_MAX_KEPT, getsizeof=_size), lock=Lock())
def _calls(declared: str, marks: Marks, many: bool, text: Text) -> tuple[str, tuple[str, ...]]:
    """The calls' grammar of tools given as JSON text (an agent sends the same tools turn after turn)."""
    tools = []
    for path, tool in json.loads(declared):
        function = tool["function"]
        # Without `parameters` a function takes none; `strict: false` asks for no enforcement.
        parameters = function.get("parameters")
        if parameters is None:
            parameters = {"type": "object", "properties": {}}
        tools.append(
            CallableTool(path, function["name"], None if function.get("strict") is False else parameters)
        )
    return calls_grammar(tools, marks, many=many, text=text)


def _answer_schema(conversation: Conversation) -> str:
    wanted = conversation.response_format
    if wanted.type == "json_schema" and wanted.strict and wanted.schema is not None:
        return json.dumps(wanted.schema)
    return '{"type":"object"}'


@cached(LRUCache(_MAX_KEPT, getsizeof=_size), lock=Lock())
def _answer(schema: str) -> tuple[str, tuple[str, ...]]:
    """The grammar of a JSON answer and what of the schema (JSON text) it does not enforce."""
    loosened: dict[str, None] = {}
    path = "response_format.json_schema.schema"
    document = json.loads(schema)
    shapes = Shapes(document, lambda place, what: loosened.setdefault(f"{place}: {what}"), Budget())
    rules = Rules()
    try:
        root = JsonValues(shapes, rules, AnyJson(rules)).rule(document, path)
    except RecursionError:
        rules, loosened = Rules(), {f"{path}: nested too deeply, any object allowed": None}
        root = JsonValues(shapes, rules, AnyJson(rules)).rule({"type": "object"}, path)
    return rules.text(root), tuple(loosened)


def _starts_thinking(conversation: Conversation) -> bool:
    """Whether the prompt ends in the thinking channel (docs/format.md#prompt-end)."""
    if not conversation.partial:
        return conversation.thinking
    begun = bool(conversation.messages[-1].reasoning) and not _continues_content(conversation)
    return conversation.thinking and begun


def _continues_content(conversation: Conversation) -> bool:
    """Whether the client wrote the beginning of the content, which no grammar of ours sees."""
    return conversation.partial and any(isinstance(p, str) and p for p in conversation.messages[-1].parts)
