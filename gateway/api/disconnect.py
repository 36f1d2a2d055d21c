"""Work that ends when its client goes away, in whatever phase the request is."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from fastapi import Request
from starlette.types import Receive

from gateway.errors import stopping

Result = TypeVar("Result")


class ClientDisconnected(Exception):
    """The client closed the connection; nobody reads what would be answered."""


async def disconnected(receive: Receive) -> None:
    """Return once the client is gone. The request's body must have been read."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def unless_disconnected(request: Request, work: Coroutine[Any, Any, Result]) -> Result:
    """Await `work`; cancel it as soon as the client disconnects, or the server ends what is not done.

    Raises:
        ClientDisconnected: the client went away first. `work` has then been cancelled and has ended.
        Unavailable: `Service.end_requests` came first; likewise.
    """
    work = _unless(work, disconnected(request.receive), ClientDisconnected())
    return await unless_ended(request, work)


async def unless_ended(request: Request, work: Coroutine[Any, Any, Result]) -> Result:
    """Await `work`; cancel it when the server ends what is not done.

    Raises:
        Unavailable: `Service.end_requests` came first. `work` has then been cancelled and has ended.
    """
    return await _unless(work, request.app.state.service.ending.wait(), stopping())


async def _unless(
    work: Coroutine[Any, Any, Result], other: Coroutine[Any, Any, object], error: Exception
) -> Result:
    """Await `work`; if `other` is done first, cancel it and raise `error`."""
    task, watcher = asyncio.ensure_future(work), asyncio.ensure_future(other)
    try:
        await asyncio.wait({task, watcher}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise error
        return task.result()
    finally:
        await end_tasks(task, watcher)


async def end_tasks(*tasks: asyncio.Future[Any]) -> None:
    """Cancel what still runs and wait until it has ended, so that its clean-up is done."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
