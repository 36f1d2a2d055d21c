"""What every request and reply has, whatever the route: an id, and HEAD wherever there is GET."""

from __future__ import annotations

import re
import uuid

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

REQUEST_ID = "x-request-id"
_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")


class Envelope:
    """ASGI middleware. A client's `x-request-id` is kept if it has at most 128 of `[A-Za-z0-9._-]`, else
    replaced; replies carry it, and so do Anthropic's error bodies."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        given = Headers(scope=scope).get(REQUEST_ID, "")
        request_id = given if _ID.fullmatch(given) else f"req_{uuid.uuid4().hex[:24]}"
        state = {**scope.get("state", {}), "request_id": request_id}
        # The server itself leaves the body of the reply to a HEAD out.
        method = "GET" if scope["method"] == "HEAD" else scope["method"]

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[REQUEST_ID] = request_id
            await send(message)

        await self.app({**scope, "method": method, "state": state}, receive, send_with_id)


def request_id_of(request: Request) -> str:
    """The id of a request that came through the envelope."""
    found = getattr(request.state, "request_id", None)
    return found if isinstance(found, str) else f"req_{uuid.uuid4().hex[:24]}"
