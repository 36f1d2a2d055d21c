"""Request bodies: bounded in size, then checked against a model.

Nothing that grows with a body runs on the event loop, except for short bodies (docs/decisions.md#r31).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import ParamSpec, TypeVar

from fastapi import Request
from pydantic import BaseModel
from starlette.requests import ClientDisconnect

from gateway.api.deps import service_of
from gateway.api.disconnect import ClientDisconnected, unless_ended
from gateway.errors import BodyNotTaken, BodyTooLarge
from gateway.parsing import SMALL, BodyLimits, check_model, parse_body
from gateway.settings import Settings

Model = TypeVar("Model", bound=BaseModel)
Given = ParamSpec("Given")
Read = TypeVar("Read")

_DRAIN_BYTES = 64 * 1024 * 1024
_DRAIN_SECONDS = 3.0


async def read_body(request: Request, limit: int) -> bytearray:
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


async def _read(request: Request, limit: int) -> bytearray:
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
    body = bytearray()  # grows without being joined in one go at the end
    async for chunk in stream:
        if len(body) + len(chunk) > limit:
            await _drain(stream)
            raise _too_large(limit)
        body += chunk
    return body


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
    request.state.body_bytes = len(body)
    limits = limits_of(service_of(request).settings)
    return await aside(request, lambda: check_model(model, parse_body(body, limits)))


async def aside(
    request: Request, work: Callable[Given, Read], *args: Given.args, **more: Given.kwargs
) -> Read:
    """`work`, which takes longer the longer the body of `request` was: in a thread, unless that was short."""
    if getattr(request.state, "body_bytes", 0) <= SMALL:
        return work(*args, **more)
    return await asyncio.to_thread(work, *args, **more)


def limits_of(settings: Settings) -> BodyLimits:
    """How much a body may hold."""
    return BodyLimits(settings.max_messages, settings.max_parts, settings.max_tools)


def _too_large(limit: int) -> BodyTooLarge:
    return BodyTooLarge(
        f"The body is larger than {limit} bytes. Send pictures and clips as URLs, or smaller ones.",
        code="request_too_large",
    )
