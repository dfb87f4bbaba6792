"""Fields of the JSON objects that a broker answers: checked for their types and limits.

An answer may come from anything that listens at an address. Each function raises `ValueError`,
which names the field and does not quote its value.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

Facts: TypeAlias = Mapping[str, Any]

ROWS_MAX: Final = 100_000
"""How many services, or workers of a service, an answer may have."""

TEXT_LENGTH_MAX: Final = 255
ADDRESS_LENGTH_MAX: Final = 510  # 255 bytes in hex
COUNT_MAX: Final = 2**63 - 1
SECONDS_MAX: Final = 2.0**53
_KINDS_MAX: Final = 256


def parsed(text: bytes) -> Any:
    """Return the value of a JSON document."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def facts_in(value: object, what: str) -> Facts:
    """Return an object; `what` names it in errors."""
    if not isinstance(value, dict):
        raise ValueError(f"{what} is not an object")
    return value


def rows_of(value: object, what: str) -> list[Any]:
    """Return an array of at most 100,000 values."""
    if not isinstance(value, list):
        raise ValueError(f"{what} is not an array")
    if len(value) > ROWS_MAX:
        raise ValueError(f"{what} has {len(value):,} rows, and the maximum is {ROWS_MAX:,}")
    return value


def field_of(facts: Facts, name: str) -> Any:
    """Return a field of any type."""
    if name not in facts:
        raise ValueError(f"it lacks {name!r}")
    return facts[name]


def count_of(facts: Facts, name: str) -> int:
    """Return a field that is an integer from 0 to 2**63 - 1."""
    return _count(field_of(facts, name), name)


def counts_of(facts: Facts, name: str) -> dict[str, int]:
    """Return a field that is an object of at most 256 counts by name."""
    counts = facts_in(field_of(facts, name), name)
    if len(counts) > _KINDS_MAX:
        raise ValueError(f"{name} has {len(counts):,} fields, and the maximum is {_KINDS_MAX}")
    key_name = f"a name in {name}"
    return {_text(key, key_name, TEXT_LENGTH_MAX): _count(counts[key], name) for key in counts}


def count_list_of(facts: Facts, name: str, length: int) -> list[int]:
    """Return a field that is an array of this many counts."""
    counts = rows_of(field_of(facts, name), name)
    if len(counts) != length:
        raise ValueError(f"{name} has {len(counts):,} counts instead of {length}")
    return [_count(each, name) for each in counts]


def seconds_of(facts: Facts, name: str) -> float:
    """Return a field that is a number of seconds from 0 to 2**53."""
    value = field_of(facts, name)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{name} is not a number")
    if not 0 <= value <= SECONDS_MAX:  # nor NaN
        raise ValueError(f"{name} is not a number of seconds from 0 to 2**53")
    return float(value)


def flag_of(facts: Facts, name: str) -> bool:
    """Return a field that is true or false."""
    value = field_of(facts, name)
    if not isinstance(value, bool):
        raise ValueError(f"{name} is neither true nor false")
    return value


def text_of(facts: Facts, name: str, length_max: int = TEXT_LENGTH_MAX) -> str:
    """Return a field that is a string of at most `length_max` characters."""
    return _text(field_of(facts, name), name, length_max)


def _count(value: object, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{name} is not an integer")
    if not 0 <= value <= COUNT_MAX:
        raise ValueError(f"{name} is not an integer from 0 to 2**63 - 1")
    return value


def _text(value: object, name: str, length_max: int) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{name} is not a string")
    if len(value) > length_max:
        raise ValueError(f"{name} has {len(value):,} characters, and the maximum is {length_max}")
    return value
