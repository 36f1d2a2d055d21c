"""Fits a decoded argument to the tool's JSON schema where nothing is lost by it."""

from __future__ import annotations

import json
from json.encoder import encode_basestring
from typing import NamedTuple

from gateway.xtml.decode.json_repair import read_json
from gateway.xtml.decode.toolschema import Types


class Fitted(NamedTuple):
    """An argument as JSON text; `fits` false where the schema asks for another type and none can be had."""

    json: str
    fits: bool


def fit(text: str, written: str | None, accepted: Types) -> Fitted:
    """The JSON text of an argument value; every strict reader takes it.

    text:     the value as the model wrote it
    written:  its type attribute; None if there is none
    accepted: the types that the schema takes

    A value keeps its literal text, so `1e2` stays `1e2` (docs/format.md#arguments).
    """
    if written == "string" or (written is None and accepted == frozenset({"string"})):
        return _fit_string(text, accepted)
    value = read_json(text)
    if value is None:
        return Fitted(encode_basestring(text), accepted is None or "string" in accepted)
    if accepted is None or value.type in accepted:
        return Fitted(value.text, True)
    if value.type == "string":
        return _fit_string(json.loads(value.text), accepted)
    if "string" in accepted and value.type != "null":
        return Fitted(encode_basestring(text), True)
    return Fitted(value.text, False)


def _fit_string(text: str, accepted: Types) -> Fitted:
    if accepted is None or "string" in accepted:
        return Fitted(encode_basestring(text), True)
    value = read_json(text)
    if value is not None and value.type in accepted:
        return Fitted(value.text.strip(), True)
    return Fitted(encode_basestring(text), False)
