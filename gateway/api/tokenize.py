"""`POST /tokenize` and `/detokenize`, as vLLM has them: token ids of a text or a conversation, and back."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
from fastapi import APIRouter, Request, Response

from gateway.api.body import aside, read_json
from gateway.api.deps import Authorised
from gateway.api.disconnect import unless_disconnected
from gateway.api.openapi import body_of, error_responses
from gateway.errors import bad_request
from gateway.schema.chat import ChatRequest
from gateway.schema.tokenize import Detokenized, DetokenizeRequest, Tokenized, TokenizeRequest
from gateway.wire.chat.request import read_chat
from gateway.xtml import Vocab

router = APIRouter(tags=["tokens"])


@router.post(
    "/tokenize",
    response_model=Tokenized,
    openapi_extra=body_of(TokenizeRequest),
    responses=error_responses(400, 401, 404, 413, 415),
)
async def tokenize(request: Request, caller: Authorised) -> Any:
    """Ids of a text, in which the spelling of a control token is text, or of a chat request's prompt."""
    service = caller.service
    body = await read_json(request, TokenizeRequest, service.settings.max_body_bytes)
    model = body.model or service.settings.served_model_name[0]
    service.check_model(model)
    vocab = service.renderer.vocab
    if body.prompt is not None:
        ids = await asyncio.to_thread(vocab.encode, body.prompt)
    else:
        chat = ChatRequest(model=model, messages=body.messages or [], tools=body.tools)
        asked = await aside(request, read_chat, chat, service.reading())
        rendered = await unless_disconnected(request, service.renderer.render(asked))
        ids = rendered.prompt.ids
    context = service.engine.info.max_model_len if service.engine else None
    # Not through the response model: a million ids take their time.
    return await asyncio.to_thread(_tokenized, ids, context, vocab if body.return_token_strs else None)


@router.post(
    "/detokenize",
    response_model=Detokenized,
    openapi_extra=body_of(DetokenizeRequest),
    responses=error_responses(400, 401, 404, 413, 415),
)
async def detokenize(request: Request, caller: Authorised) -> Any:
    """The text of token ids; control tokens are spelled out."""
    service = caller.service
    body = await read_json(request, DetokenizeRequest, service.settings.max_body_bytes)
    service.check_model(body.model or service.settings.served_model_name[0])
    vocab = service.renderer.vocab
    for index, id_ in enumerate(body.tokens):
        if not 0 <= id_ < vocab.size:
            raise bad_request(
                f"tokens[{index}] is not a token id; ids go from 0 to {vocab.size - 1}", f"tokens[{index}]"
            )
    return {"prompt": await asyncio.to_thread(_text, body.tokens, vocab)}


def _tokenized(ids: Sequence[int], context: int | None, shown_by: Vocab | None) -> Response:
    found = {
        "count": len(ids),
        "max_model_len": context,
        "tokens": ids,
        "token_strs": [_shown(id_, shown_by) for id_ in ids] if shown_by is not None else None,
    }
    return Response(msgspec.json.encode(found), media_type="application/json")


def _text(ids: list[int], vocab: Vocab) -> str:
    data = b""
    parts: list[str] = []
    for id_ in ids:
        name = vocab.special_name(id_)
        if name is None:
            data += vocab.token_bytes(id_)
        else:
            parts += [data.decode(errors="replace"), name]
            data = b""
    return "".join([*parts, data.decode(errors="replace")])


def _shown(id_: int, vocab: Vocab) -> str:
    return vocab.special_name(id_) or vocab.token_bytes(id_).decode(errors="replace")
