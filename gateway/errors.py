"""Errors as OpenAI clients know them: an HTTP status and `{"error": {message, type, param, code}}`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import ValidationError
from starlette.exceptions import HTTPException

_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}


class ApiError(Exception):
    """Ends a request with `status` and an OpenAI error body. `param` names the field at fault."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.headers = headers or {}

    @property
    def body(self) -> dict[str, Any]:
        kind = _TYPES.get(self.status, "invalid_request_error" if self.status < 500 else "server_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}

    def response(self) -> JSONResponse:
        return JSONResponse(self.body, self.status, headers=self.headers)


def bad_request(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    """400: the request's content is wrong."""
    return ApiError(400, message, param=param, code=code)


def server_failed() -> ApiError:
    """500: a defect of the server; whoever answers with it sees to it that the log says more."""
    return ApiError(500, "The server failed on this request; its log says why")


async def unforeseen(_: Request, __: Exception) -> JSONResponse:
    """The answer to an error nobody expected; Starlette raises it again once this is sent, for the log."""
    return server_failed().response()


def stopping() -> ApiError:
    """503: the server was told to stop, and the time for what it had begun is over."""
    return ApiError(503, "The server is stopping; try again, or elsewhere", code="server_stopping")


def field_path(parts: Iterable[int | str]) -> str:
    """`("messages", 2, "content")` as `messages[2].content`."""
    path = ""
    for part in parts:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else part
    return path


def errors_of(invalid: ValidationError) -> list[dict[str, Any]]:
    """Pydantic's errors without the input, which may be a prompt or a picture's base64."""
    return [dict(e) for e in invalid.errors(include_url=False, include_input=False, include_context=False)]


def from_validation(errors: Sequence[dict[str, Any]], known: frozenset[str] = frozenset()) -> ApiError:
    """The first of pydantic's errors as a 400 that names the field.

    Where a field is a union, pydantic's location carries the member's name too; such parts are not a field
    names and are left out (`known` is not consulted for list positions).
    """
    error = errors[0]
    everything = not known or error["type"] == "extra_forbidden"  # whose field nobody knows
    where = [part for part in error["loc"] if isinstance(part, int) or everything or part in known]
    param = field_path(where) or None
    message = str(error["msg"]).removeprefix("Value error, ")
    return bad_request(f"{param}: {message}" if param else message, param)


def install_handlers(app: FastAPI) -> None:
    """Make every error of the service, of FastAPI and of Starlette an OpenAI error body."""

    @app.exception_handler(ApiError)
    async def api_error(_: Request, error: ApiError) -> JSONResponse:
        return error.response()

    @app.exception_handler(RequestValidationError)
    async def validation_error(_: Request, error: RequestValidationError) -> JSONResponse:
        errors = [{**e, "loc": e["loc"][1:]} for e in error.errors()]
        return from_validation(errors).response()

    app.add_exception_handler(Exception, unforeseen)

    @app.exception_handler(HTTPException)
    async def http_error(request: Request, error: HTTPException) -> JSONResponse:
        message = str(error.detail)
        if error.status_code == 404:
            message = f"No such path: {request.method} {request.url.path}"
        elif error.status_code == 405:
            message = f"{request.url.path} does not take {request.method}"
        return ApiError(error.status_code, message, headers=dict(error.headers or {})).response()
