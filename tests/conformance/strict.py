"""Checks JSON against an SDK's own pydantic types, more strictly than the SDKs do.

The SDKs build their models without validation, and their models allow unknown fields, so a wrong union member
or a missing field goes unnoticed until a program reads it. Here each union is resolved by its `type`, every
required field must be there, and every field must be one that the type has or that is listed here.
"""

from __future__ import annotations

import types
import typing
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pydantic

# What replies have beyond the types, each because OpenAI's own service sends it and clients show it.
BEYOND_THE_TYPES = {
    "Response": {"store"},
    "ResponseCustomToolCall": {"status"},
    "ResponseFunctionCallArgumentsDoneEvent": {"name"},
    "Logprob": {"bytes"},
    "LogprobTopLogprob": {"bytes"},
}


def problems(kind: Any, data: Any, path: str = "$") -> list[str]:
    """What is wrong with `data` as a `kind`; an empty list if nothing is."""
    origin = get_origin(kind)
    if kind is Any or kind is object:
        return []
    if origin is Annotated:
        return problems(get_args(kind)[0], data, path)
    if isinstance(kind, typing.TypeAliasType) if hasattr(typing, "TypeAliasType") else False:
        return problems(kind.__value__, data, path)
    if origin in (Union, types.UnionType):
        return _union(get_args(kind), data, path)
    if origin is Literal:
        return [] if data in get_args(kind) else [f"{path}: {data!r} is not one of {get_args(kind)}"]
    if origin is list:
        if not isinstance(data, list):
            return [f"{path}: {data!r} is not a list"]
        return [p for i, item in enumerate(data) for p in problems(get_args(kind)[0], item, f"{path}[{i}]")]
    if origin is dict:
        if not isinstance(data, dict):
            return [f"{path}: {data!r} is not an object"]
        return [p for key, item in data.items() for p in problems(get_args(kind)[1], item, f"{path}.{key}")]
    if isinstance(kind, type) and issubclass(kind, pydantic.BaseModel):
        return _model(kind, data, path)
    return _plain(kind, data, path)


def _model(kind: type[pydantic.BaseModel], data: Any, path: str) -> list[str]:
    if not isinstance(data, dict):
        return [f"{path}: {data!r} is not an object ({kind.__name__})"]
    found = []
    fields = {field.alias or name: field for name, field in kind.model_fields.items()}
    for name, field in fields.items():
        if name in data:
            found += problems(field.annotation, data[name], f"{path}.{name}")
        elif field.is_required():
            found.append(f"{path}.{name}: missing ({kind.__name__})")
    known = fields.keys() | BEYOND_THE_TYPES.get(kind.__name__, set())
    found += [f"{path}.{name}: {kind.__name__} has no such field" for name in data if name not in known]
    return found


def _union(members: tuple[Any, ...], data: Any, path: str) -> list[str]:
    if data is None:
        return [] if type(None) in members else [f"{path}: null"]
    flat = [m for member in members for m in _flat(member) if m is not type(None)]
    if isinstance(data, dict):
        models = [m for m in flat if isinstance(m, type) and issubclass(m, pydantic.BaseModel)]
        by_type = [m for m in models if data.get("type") in _type_names(m)]
        if len(by_type) == 1:
            return problems(by_type[0], data, path)
        flat = by_type or [m for m in flat if m not in models or not _type_names(m)]
    tried = [problems(member, data, path) for member in flat]
    if not tried:
        return [f"{path}: type {data.get('type')!r} is none of the union's"]
    return min(tried, key=len)


def _flat(member: Any) -> list[Any]:
    while get_origin(member) is Annotated:
        member = get_args(member)[0]
    if get_origin(member) in (Union, types.UnionType):
        return [m for inner in get_args(member) for m in _flat(inner)]
    return [member]


def _type_names(model: type[pydantic.BaseModel]) -> tuple[Any, ...]:
    field = model.model_fields.get("type")
    if field is None:
        return ()
    return tuple(name for m in _flat(field.annotation) if get_origin(m) is Literal for name in get_args(m))


def _plain(kind: Any, data: Any, path: str) -> list[str]:
    wanted = {str: str, int: int, float: (int, float), bool: bool}.get(kind)
    if wanted is None:
        try:
            pydantic.TypeAdapter(kind).validate_json(pydantic.TypeAdapter(Any).dump_json(data), strict=True)
        except pydantic.ValidationError as error:
            return [f"{path}: {error}"]
        return []
    good = isinstance(data, wanted) and (kind is bool or not isinstance(data, bool))
    return [] if good else [f"{path}: {data!r} is not a {kind.__name__}"]
