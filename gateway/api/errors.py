"""Errors over HTTP: the status of each kind, and its body in the wire format of the route.

| error | status | OpenAI `type` | Anthropic `type` |
|---|---|---|---|
| InvalidRequest | 400 | invalid_request_error | invalid_request_error |
| Unauthenticated | 401 | authentication_error | authentication_error |
| Forbidden | 403 | permission_error | permission_error |
| NotFound | 404 | not_found_error | not_found_error |
| BodyTooLarge | 413 | invalid_request_error | request_too_large |
| BodyNotTaken | 415 | invalid_request_error | invalid_request_error |
| LimitReached | 429 | rate_limit_error | rate_limit_error |
| ServerFault | 500 | server_error | api_error |
| ReplyUnusable | 502 | server_error | api_error |
| Unavailable | 503 (529) | server_error | overloaded_error |

OpenAI's body is `{"error": {message, type, param, code}}`, Anthropic's
`{"type": "error", "error": {type, message}, "request_id"}`; clients of the Messages API get the latter.
"""

from __future__ import annotations

import math
import uuid
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from gateway.api.disconnect import ClientDisconnected
from gateway.api.envelope import request_id_of
from gateway.errors import (
    BodyNotTaken,
    BodyTooLarge,
    ContextOverflow,
    Forbidden,
    InvalidRequest,
    LimitReached,
    NotFound,
    ReplyUnusable,
    RequestError,
    ServerFault,
    ThreadsNotKept,
    Unauthenticated,
    Unavailable,
    from_validation,
)

_OPENAI: dict[type[RequestError], tuple[int, str]] = {
    InvalidRequest: (400, "invalid_request_error"),
    Unauthenticated: (401, "authentication_error"),
    Forbidden: (403, "permission_error"),
    NotFound: (404, "not_found_error"),
    BodyTooLarge: (413, "invalid_request_error"),
    BodyNotTaken: (415, "invalid_request_error"),
    LimitReached: (429, "rate_limit_error"),
    ServerFault: (500, "server_error"),
    ReplyUnusable: (502, "server_error"),
    Unavailable: (503, "server_error"),
}


_ANTHROPIC: dict[type[RequestError], tuple[int, str]] = {
    **{kind: (status, name) for kind, (status, name) in _OPENAI.items() if status < 500},
    BodyTooLarge: (413, "request_too_large"),
    ServerFault: (500, "api_error"),
    ReplyUnusable: (502, "api_error"),
    Unavailable: (529, "overloaded_error"),
}
_MESSAGES_PATHS = ("/v1/messages", "/anthropic/")


def is_anthropic(request: Request) -> bool:
    """Whether the client speaks Anthropic's API, by the path or by the header that its SDKs send."""
    path = request.scope.get("path", "").removeprefix(request.scope.get("root_path", ""))
    return path.startswith(_MESSAGES_PATHS) or "anthropic-version" in request.headers


def anthropic_body(error: RequestError) -> dict[str, Any]:
    """`error` as Anthropic's clients know it; a full context in the words that they act on."""
    message = error.message
    if isinstance(error, ContextOverflow):
        message = f"prompt is too long: {error.n_prompt} tokens > {error.limit} maximum"
    body = _anthropic(_row(error, _ANTHROPIC)[1], message)
    if isinstance(error, ThreadsNotKept):
        # What the SDK looks for before it sends the request again without a thread.
        body["error"]["details"] = {"error_code": error.code, "unsupported": ["thread"]}
    return body


def _anthropic(kind: str, message: str) -> dict[str, Any]:
    return {
        "type": "error",
        "error": {"type": kind, "message": message},
        "request_id": f"req_{uuid.uuid4().hex[:24]}",
    }


def status_of(error: RequestError) -> int:
    """The HTTP status of `error`."""
    return _row(error, _OPENAI)[0]


def openai_body(error: RequestError) -> dict[str, Any]:
    """`error` as OpenAI clients know it."""
    kind = _row(error, _OPENAI)[1]
    return {"error": {"message": error.message, "type": kind, "param": error.param, "code": error.code}}


def headers_of(error: RequestError) -> dict[str, str]:
    """What a client or proxy is told beside the body."""
    if isinstance(error, Unauthenticated):
        return {"www-authenticate": "Bearer"}
    if isinstance(error, BodyTooLarge):
        return {"connection": "close"}
    if isinstance(error, BodyNotTaken) and error.param == "content-encoding":
        return {"accept-encoding": "identity"}
    if isinstance(error, LimitReached | Unavailable) and error.retry_after is not None:
        return {"retry-after": str(math.ceil(error.retry_after))}
    return {}


def response_of(error: RequestError, request: Request) -> JSONResponse:
    """`error` as an HTTP response in the format that the client of `request` speaks."""
    headers = headers_of(error)
    if not is_anthropic(request):
        return JSONResponse(openai_body(error), status_of(error), headers=headers)
    body = anthropic_body(error) | {"request_id": request_id_of(request)}
    headers["request-id"] = body["request_id"]
    return JSONResponse(body, _row(error, _ANTHROPIC)[0], headers=headers)


def install_handlers(app: FastAPI) -> None:
    """Make every error of the service, of FastAPI and of Starlette a body in the format of its route."""

    @app.exception_handler(RequestError)
    async def request_error(request: Request, error: RequestError) -> JSONResponse:
        return response_of(error, request)

    @app.exception_handler(ClientDisconnected)
    async def gone(_: Request, __: ClientDisconnected) -> Response:
        return Response(status_code=499)  # nobody is there to read it; it ends up in the log

    @app.exception_handler(RequestValidationError)
    async def validation_error(request: Request, error: RequestValidationError) -> JSONResponse:
        found = from_validation([{**e, "loc": e["loc"][1:]} for e in error.errors()])
        return response_of(found, request)

    app.add_exception_handler(Exception, unforeseen)

    @app.exception_handler(HTTPException)
    async def http_error(request: Request, error: HTTPException) -> JSONResponse:
        message = str(error.detail)
        if error.status_code == 404:
            message = f"There is no path {request.url.path}"
        elif error.status_code == 405:
            message = f"{request.url.path} does not take {request.method}"
        kind = "not_found_error" if error.status_code == 404 else "invalid_request_error"
        body: dict[str, Any] = {"error": {"message": message, "type": kind, "param": None, "code": None}}
        if is_anthropic(request):
            body = _anthropic(kind, message) | {"request_id": request_id_of(request)}
        return JSONResponse(body, error.status_code, headers=dict(error.headers or {}))


async def unforeseen(request: Request, _: Exception) -> JSONResponse:
    """The answer to an error nobody expected; Starlette raises it again once this is sent, for the log."""
    return response_of(ServerFault(), request)


def _row(error: RequestError, table: dict[type[RequestError], tuple[int, str]]) -> tuple[int, str]:
    return next(table[kind] for kind in type(error).__mro__ if kind in table)
