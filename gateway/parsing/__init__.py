"""Request bodies as plain data: JSON in steps, limits, models (docs/decisions.md#r9, #r16, #r31). No HTTP."""

from gateway.parsing.body import SMALL, parse_body
from gateway.parsing.limits import BodyLimits
from gateway.parsing.model import check_model

__all__ = ["SMALL", "BodyLimits", "check_model", "parse_body"]
