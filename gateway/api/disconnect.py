"""Work that ends when its client goes away, in whatever phase the request is."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from fastapi import Request
from starlette.types import Receive

from gateway.errors import stopping
from gateway.service import service_of

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
        ApiError: 503, `Service.end_requests` came first; likewise.
    """
    return await unless_ended(request, _unless_gone(request, work))


async def unless_ended(request: Request, work: Coroutine[Any, Any, Result]) -> Result:
    """Await `work`; cancel it when the server ends what is not done.

    Raises:
        ApiError: 503, `Service.end_requests` came first. `work` has then been cancelled and has ended.
    """
    task = asyncio.ensure_future(work)
    ending = asyncio.ensure_future(service_of(request).ending.wait())
    try:
        await asyncio.wait({task, ending}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise stopping()
        return task.result()
    finally:
        await end_tasks(task, ending)


async def _unless_gone(request: Request, work: Coroutine[Any, Any, Result]) -> Result:
    task = asyncio.ensure_future(work)
    watcher = asyncio.ensure_future(disconnected(request.receive))
    try:
        await asyncio.wait({task, watcher}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientDisconnected
        return task.result()
    finally:
        await end_tasks(task, watcher)


async def end_tasks(*tasks: asyncio.Future[Any]) -> None:
    """Cancel what still runs and wait until it has ended, so that its clean-up is done."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
