"""What the OpenAPI document says about routes that read their bodies themselves."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel

from gateway.schema.error import ErrorBody

_WHAT = {
    400: "The request is wrong; `param` names the field",
    401: "No valid API key",
    403: "Not the caller's to change",
    404: "No such model",
    413: "The body is too large",
    415: "The body is compressed",
    429: "Too many requests in progress",
    502: "The model's reply cannot be used",
    503: "The engine is not up",
    529: "The engine is not up",
}


def error_responses(*statuses: int, model: type[BaseModel] = ErrorBody) -> dict[int | str, dict[str, Any]]:
    """`responses=` for the error statuses of a route."""
    return {status: {"model": model, "description": _WHAT[status]} for status in statuses}


def body_of(model: type[BaseModel]) -> dict[str, Any]:
    """`openapi_extra=` for a JSON body of `model`."""
    return bodies_of({"application/json": model})


def bodies_of(models: dict[str, type[BaseModel]]) -> dict[str, Any]:
    """`openapi_extra=` for a body of one of several content types."""
    content = {kind: {"schema": _inlined(model.model_json_schema())} for kind, model in models.items()}
    return {"requestBody": {"required": True, "content": content}}


def _inlined(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with `$defs` put in place: pydantic's references do not resolve inside OpenAPI."""
    defs = schema.pop("$defs", {})

    def inline(value: Any) -> Any:
        if isinstance(value, dict):
            if "$ref" in value:
                return inline(defs[value["$ref"].rsplit("/", 1)[-1]])
            return {key: inline(item) for key, item in value.items()}
        return [inline(item) for item in value] if isinstance(value, list) else value

    inlined: dict[str, Any] = inline(schema)
    return inlined


def describe(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document; what FastAPI would answer with 422 is a 400 here, with the body of all errors."""
    if app.openapi_schema is None:
        document = get_openapi(
            title=app.title, version=app.version, description=app.description, routes=app.routes
        )
        for operations in document["paths"].values():
            for operation in operations.values():
                operation["responses"].pop("422", None)
        for name in ("HTTPValidationError", "ValidationError"):
            document.get("components", {}).get("schemas", {}).pop(name, None)
        app.openapi_schema = document
    return app.openapi_schema
