"""Request bodies: bounded in size, then checked against a model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect

from gateway.api.disconnect import ClientDisconnected, unless_ended
from gateway.errors import BodyNotTaken, BodyTooLarge, bad_request, errors_of, from_validation

Model = TypeVar("Model", bound=BaseModel)

# Above this many bytes parsing is slow enough to be felt by other requests.
_PARSE_ASIDE = 1024 * 1024
_DRAIN_BYTES = 64 * 1024 * 1024
_DRAIN_SECONDS = 3.0


async def read_body(request: Request, limit: int) -> bytes:
    """The whole body.

    Raises:
        BodyTooLarge: the body is larger than `limit` bytes, by its Content-Length or while it is read.
        BodyNotTaken: it is compressed.
        Unavailable: the server ends while the body is still being sent.
        ClientDisconnected: the client went away while sending.
    """
    try:
        return await unless_ended(request, _read(request, limit))
    except ClientDisconnect:
        raise ClientDisconnected from None


async def _read(request: Request, limit: int) -> bytes:
    stream = request.stream()
    encoding = ", ".join(request.headers.getlist("content-encoding"))
    if any(name.strip().lower() not in ("", "identity") for name in encoding.split(",")):
        await _drain(stream)
        raise BodyNotTaken(
            f"Content-Encoding {encoding[:40]!r} is not taken; send the body uncompressed", "content-encoding"
        )
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and int(announced) > limit:
        await _drain(stream)
        raise _too_large(limit)
    chunks: list[bytes] = []
    size = 0
    async for chunk in stream:
        size += len(chunk)
        if size > limit:
            await _drain(stream)
            raise _too_large(limit)
        chunks.append(chunk)
    return b"".join(chunks)


async def _drain(stream: AsyncIterator[bytes]) -> None:
    """Read on for a moment, keeping nothing.

    Closing a connection on which data still arrives resets it, and the client would never see the answer.
    """
    left = _DRAIN_BYTES
    try:
        async with asyncio.timeout(_DRAIN_SECONDS):
            async for chunk in stream:
                left -= len(chunk)
                if left < 0:
                    return
    except TimeoutError:
        pass


async def read_json(request: Request, model: type[Model], limit: int) -> Model:
    """The body as `model`.

    Raises:
        InvalidRequest: names the field.
        BodyTooLarge, BodyNotTaken, Unavailable: see `read_body`.
        ClientDisconnected: the client went away while sending.
    """
    body = await read_body(request, limit)
    try:
        if len(body) > _PARSE_ASIDE:
            return await asyncio.to_thread(model.model_validate_json, body)
        return model.model_validate_json(body)
    except ValidationError as invalid:
        errors = errors_of(invalid)
    if errors[0]["type"] == "json_invalid":
        raise bad_request(f"The body is not valid JSON: {errors[0]['msg']}")
    if errors[0]["type"] == "model_type" and not errors[0]["loc"]:
        raise bad_request("The body must be a JSON object")
    raise from_validation(errors, frozenset(model.model_fields))


def _too_large(limit: int) -> BodyTooLarge:
    return BodyTooLarge(
        f"The body is larger than {limit} bytes. Send pictures and clips as URLs, or smaller ones.",
        code="request_too_large",
    )
