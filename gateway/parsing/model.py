"""A parsed body against its model; what is wrong is named by its whole path and what belongs there."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from gateway.errors import InvalidRequest, bad_request, errors_of, field_path

Model = TypeVar("Model", bound=BaseModel)

_MAX_PATH_CHARS = 200
_WORDS: dict[Any, str] = {str: "a string", int: "an integer", float: "a number", bool: "true or false"}
# Pydantic's errors that say that a value is of another type than it must be.
_TYPE_ERRORS = ("_type", "_parsing", "_from_float", "_parsing_size", "_attributes_type", "literal_error")


def check_model(model: type[Model], body: Mapping[str, Any]) -> Model:
    """`body` as a `model`.

    Raises:
        InvalidRequest: names the field at fault (docs/decisions.md#r16).
    """
    try:
        return model.model_validate(body)
    except ValidationError as invalid:
        raise refusal(model, errors_of(invalid)) from None


def refusal(model: type[BaseModel], errors: list[dict[str, Any]]) -> InvalidRequest:
    """Pydantic's errors as one that names the field: the deepest among those of the first wrong field.

    Where a field may be of several types, pydantic has an error for each, and its places carry the names of
    the types, which are no part of the path.
    """
    first = errors[0]["loc"][:1]
    found = [(error, *_place(model, error["loc"])) for error in errors if error["loc"][:1] == first]
    error, path, wanted = max(found, key=lambda one: len(one[1]))
    where = field_path(path)[:_MAX_PATH_CHARS]
    kind = str(error["type"])
    if kind == "missing":
        said = "is required, and missing"
    elif kind == "extra_forbidden":
        said = "is not a field of this request"
    elif kind.endswith(_TYPE_ERRORS):
        said = f"must be {_said(wanted)}"
    else:
        said = ": " + str(error["msg"]).removeprefix("Value error, ").replace("Input should be", "must be")
    if not where:
        return bad_request(said.removeprefix(": "))
    return bad_request(f"{where}{said if said[0] == ':' else f' {said}'}", where)


def _place(model: type[BaseModel], loc: tuple[int | str, ...]) -> tuple[list[int | str], Any]:
    """The path that `loc` stands for, and the type that belongs there."""
    path: list[int | str] = []
    wanted: Any = model
    for index, part in enumerate(loc):
        members = list(_members(wanted))
        if len(members) > 1:
            # The part names a member of the union. Where it is the last one, all members are wanted.
            if index < len(loc) - 1:
                wanted = next((m for m in members if _is_called(m, part)), wanted)
            continue
        path.append(part)
        wanted = _inner(members[0] if members else Any, part)
    return path, wanted


def _inner(wanted: Any, part: int | str) -> Any:
    """The type at `part` of a value of type `wanted`."""
    if isinstance(wanted, type) and issubclass(wanted, BaseModel):
        field = wanted.model_fields.get(str(part))
        return field.annotation if field is not None else Any
    inner = get_args(wanted)
    if get_origin(wanted) is dict:
        return inner[1]
    return inner[0] if get_origin(wanted) is list else Any


def _members(wanted: Any) -> Iterator[Any]:
    """The types that a value may have, null left out."""
    if get_origin(wanted) is Annotated:
        yield from _members(get_args(wanted)[0])
    elif get_origin(wanted) in (Union, types.UnionType):
        for member in get_args(wanted):
            if member is not type(None):
                yield from _members(member)
    else:
        yield wanted


def _is_called(member: Any, part: int | str) -> bool:
    name = getattr(get_origin(member) or member, "__name__", "")
    return isinstance(part, str) and part.split("[")[0].rsplit("-", 1)[-1] == name


def _said(wanted: Any) -> str:
    """The type in words: `a string or an array of strings`."""
    said = dict.fromkeys(_said_one(member) for member in _members(wanted))
    return " or ".join(said)


def _said_one(wanted: Any) -> str:
    if wanted in _WORDS:
        return _WORDS[wanted]
    origin, inner = get_origin(wanted), get_args(wanted)
    if origin is list or wanted is list:
        words = _said(inner[0]) if inner else ""
        plural = {"a string": " of strings", "an integer": " of integers", "a number": " of numbers"}
        return f"an array{plural.get(words, '')}"
    if origin is Literal:
        return " or ".join(str(value) for value in inner)
    return "any value" if wanted is Any else "an object"
