"""A plan: everything that is drawn before a run, and its text.

`seed` gives the randomness inside the run (latencies, chunk sizes, lateness of processes), with one
stream per concern (`world.luck`). Everything else is in the plan, so that its text describes the
same run in later versions, which may draw differently.

The text is TOML, with a line for each knob, process, call and fault:

    scenario = "crash-broker"
    seed = 17
    knobs.calls = 120
    knobs.clients = [
      { name = "client-1", version = "0.3", slots = 64 },
    ]
    calls = [
      { number = 1, at_s = 0.25, client = "client-1", service = "alpha", payload = "1:*12" },
    ]
    faults = [
      { at_s = 3.5, kind = "crash-broker", duration_s = 1.25, lot = 0.5 },
    ]

Bytes are a text and its number of repetitions: `"1:*3"` is `b"1:1:1:"`. `"none"` is None. Omitted
fields have their defaults; so a knob that is added later needs a default that leaves older plans
unchanged.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from enum import Enum, StrEnum
from functools import cache
from inspect import Parameter, signature
from math import inf
from types import NoneType
from typing import Any, Final, NamedTuple, get_args, get_origin, get_type_hints

from requite.errors import ConfigurationError
from requite.sim.kernel.faults import Fault

_NONE: Final = "none"
_LARGEST: Final = 1e12
_BYTES_MAX: Final = 1 << 24  # of one value
_SEED_MAX: Final = 1 << 1024
_QUOTED_MAX: Final = 100  # characters of a value in a message


class Plan(NamedTuple):
    """A run before it begins. `knobs` includes the processes; `calls` and `faults` are those of the
    first phase."""

    scenario: str
    seed: int
    knobs: Any
    calls: tuple[Any, ...]
    faults: tuple[Fault, ...]


# --- to text --------------------------------------------------------------------------------------
def write(plan: Plan) -> str:
    """Return a plan as text."""
    return "\n".join(_lines(plan)) + "\n"


def _lines(plan: Plan) -> Iterator[str]:
    yield f"scenario = {_text(plan.scenario)}"
    yield f"seed = {plan.seed}"
    kind: type = type(plan.knobs)
    for name in defaults_of(kind):
        yield from _setting(f"knobs.{name}", getattr(plan.knobs, name))
    yield from _setting("calls", plan.calls)
    yield from _setting("faults", plan.faults)


def _setting(name: str, value: Any) -> Iterator[str]:
    """Yield a value as a line, or as one line for each of its records."""
    if records := records_of(value):
        yield f"{name} = ["
        yield from (f"  {_text(each)}," for each in records)
        yield "]"
    else:
        yield f"{name} = {_text(value)}"


def _text(value: Any) -> str:
    if value is None:
        return f'"{_NONE}"'
    if is_record(type(value)):
        return f"{{ {', '.join(_shown(value))} }}"
    if isinstance(value, tuple):
        return f"[{', '.join(map(_text, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    text = _bytes_text(value) if isinstance(value, bytes) else str(value)
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")  # as TOML has it


def _shown(record: Any) -> Iterator[str]:
    """Yield the fields of a record; those with an empty default only if they are not empty."""
    kind: type = type(record)
    for name, default in defaults_of(kind).items():
        value = getattr(record, name)
        if value != default or value not in (None, ""):
            yield f"{name} = {_text(value)}"


def _bytes_text(content: bytes) -> str:
    """Return the shortest part whose repetition gives the whole, and the number of repetitions."""
    if not content:
        return ""
    size = (content + content).index(content, 1)
    return f"{content[:size].decode('latin-1')}*{len(content) // size}"


# --- from text ------------------------------------------------------------------------------------
class Kinds(NamedTuple):
    """The types of the knobs and the calls of a plan."""

    knobs: type
    call: type


def read_tables(text: str, where: str) -> dict[str, Any]:
    """Parse the text of a plan. Raises `ConfigurationError` if it is not TOML, or not a plan."""
    try:
        tables = _toml(text)
    except ValueError as error:
        raise ConfigurationError(f"{where} is not a plan: {error}") from None
    kinds = {"scenario": str, "seed": int, "knobs": dict, "calls": list, "faults": list}
    for name, kind in kinds.items():
        if type(tables.get(name)) is not kind:
            raise ConfigurationError(
                f"{where} is not a plan: {name!r} is missing, or has the wrong type"
            )
    if not 0 <= tables["seed"] < _SEED_MAX:
        raise ConfigurationError(f"{where} is not a plan: its seed is out of range")
    return tables


def from_tables(tables: Mapping[str, Any], kinds: Kinds, where: str) -> Plan:
    """Return the plan in parsed tables. Raises `ConfigurationError`, which names the bad field."""
    knobs = _record(kinds.knobs, tables["knobs"], f"{where}: knobs")
    for name in defaults_of(kinds.knobs):
        records = records_of(getattr(knobs, name))
        names = [record.name for record in records if hasattr(record, "name")]
        _check_unique(names, f"{where}: knobs: {name}: name")
    calls = _records(kinds.call, tables["calls"], f"{where}: calls")
    _check_order(calls, f"{where}: calls")
    fault_kind = get_args(_hints(kinds.knobs)["faults"])[0]
    faults = _records(Fault, tables["faults"], f"{where}: faults")
    return Plan(
        tables["scenario"],
        tables["seed"],
        knobs,
        calls,
        tuple(_replace_kind(fault, fault_kind, where) for fault in faults),
    )


def read_knob(kind: type, setting: str) -> tuple[str, Any]:
    """Parse `NAME=VALUE` for a class of knobs; the value is TOML, or text without quotes.

    Raises `ConfigurationError` for an unknown name, or an invalid value.
    """
    name, equals, text = setting.partition("=")
    if not equals:
        raise ConfigurationError(f"knob {setting!r} has no value; write NAME=VALUE")
    known = defaults_of(kind)
    if name not in known:
        raise ConfigurationError(f"there is no knob {name!r}; the knobs are {', '.join(known)}")
    try:
        value = _toml(f"value = {text}")["value"]
    except ValueError:
        value = text
    where = f"knob {name}"
    read = _value(_hints(kind)[name], value, where)
    _check_range(name, read, where)
    return name, read


def _toml(text: str) -> dict[str, Any]:
    """Parse TOML. Raises `ValueError`, also for numbers and nesting that Python cannot parse."""
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _check_order(calls: Iterable[Any], where: str) -> None:
    """Check that each call has a number of its own, and follows at most one earlier call of its
    client, which no other call follows."""
    clients: dict[int, str] = {}
    for call in sorted(calls, key=lambda call: int(call.number)):
        follows = getattr(call, "follows", None)
        if follows is not None and clients.get(follows) != call.client:
            raise ConfigurationError(
                f"{where}: call {call.number} cannot follow {follows}, "
                f"which is not an earlier call of {call.client}"
            )
        clients[call.number] = getattr(call, "client", "")
    _check_unique([call.number for call in calls], f"{where}: number")
    followed = (getattr(call, "follows", None) for call in calls)
    _check_unique([each for each in followed if each is not None], f"{where}: follows")


def _check_unique(values: Sequence[Any], where: str) -> None:
    seen: set[Any] = set()
    for value in values:
        if value in seen:
            raise ConfigurationError(f"{where}: {_quoted(value)} is there twice")
        seen.add(value)


def _replace_kind(fault: Fault, kind: type[StrEnum], where: str) -> Fault:
    return fault._replace(kind=_member(kind, fault.kind, f"{where}: faults: kind"))


def _records(kind: type, values: Iterable[Any], where: str) -> tuple[Any, ...]:
    return tuple(_record(kind, value, where) for value in values)


def _record(kind: type, values: Any, where: str) -> Any:
    known = defaults_of(kind)
    if not isinstance(values, dict):
        raise ConfigurationError(f"{where}: {values!r} is not a table")
    for name in values:
        if name not in known:
            raise ConfigurationError(
                f"{where}: there is no {name!r}; the names are {', '.join(known)}"
            )
    for name, default in known.items():
        if default is Parameter.empty and name not in values:
            raise ConfigurationError(f"{where}: {name!r} is missing, and has no default")
    hints = _hints(kind)
    read = {n: _value(hints[n], value, f"{where}: {n}") for n, value in values.items()}
    for name, value in read.items():
        _check_range(name, value, f"{where}: {name}")
    return kind(**read)


def _value(kind: Any, value: Any, where: str) -> Any:
    if NoneType in get_args(kind):
        if value == _NONE:
            return None
        kind = next(each for each in get_args(kind) if each is not NoneType)
    if get_origin(kind) is tuple:
        of = get_args(kind)[0]
        return tuple(_value(of, each, where) for each in _checked(list, value, where))
    if isinstance(kind, type):
        if is_record(kind):
            return _record(kind, value, where)
        if issubclass(kind, Enum) and kind is not StrEnum:
            return _member(kind, value, where)
        if kind is bytes:
            return _bytes(_checked(str, value, where), where)
        if kind is float:
            return _float(_checked(int | float, value, where))
        return _checked(str if kind is StrEnum else kind, value, where)
    return value


def _check_range(name: str, value: Any, where: str) -> None:
    """Refuse a number that no seed draws: negative, not finite, a probability above 1, or the lot
    of no victim."""
    if isinstance(value, int | float):
        most = 1.0 if name == "lot" or name.endswith("_p") else _LARGEST
        if not 0 <= value <= most:
            raise ConfigurationError(
                f"{where}: {_quoted(value)} is out of range; it is 0 to {most:g}"
            )
        if name == "lot" and value == most:
            raise ConfigurationError(
                f"{where}: {_quoted(value)} is out of range; it is less than 1"
            )


def _checked(kind: Any, value: Any, where: str) -> Any:
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ConfigurationError(f"{where}: {_quoted(value)} has the wrong type")
    return value


def _member(kind: type[Enum], value: Any, where: str) -> Any:
    try:
        return kind(value)
    except ValueError:
        known = ", ".join(str(each.value) for each in kind)
        raise ConfigurationError(
            f"{where}: there is no {_quoted(value)}; there are {known}"
        ) from None


def _quoted(value: Any) -> str:
    """Return a value as a message quotes it: without its end if it is long."""
    try:
        text = repr(value)
    except ValueError:  # such an int has no decimal text in Python
        return "a number of thousands of digits"
    return text if len(text) <= _QUOTED_MAX else f"{text[:_QUOTED_MAX]}…"


def _float(number: float) -> float:
    try:
        return float(number)
    except OverflowError:  # of an int
        return inf


def _bytes(text: str, where: str) -> bytes:
    part, _, times = text.rpartition("*")
    try:
        content = part.encode("latin-1")
        count = int(times) if text else 0
    except ValueError:
        count = -1
    if count < 0:
        raise ConfigurationError(
            f"{where}: {_quoted(text)} is not a text with a number of repetitions"
        )
    if len(part) * count > _BYTES_MAX:
        raise ConfigurationError(f"{where}: {_quoted(text)} is longer than {_BYTES_MAX:,} bytes")
    return content * count


# --- records --------------------------------------------------------------------------------------
def is_record(kind: type) -> bool:
    """Return whether a type has named fields: a dataclass, or a named tuple."""
    return is_dataclass(kind) or hasattr(kind, "_fields")


def records_of(value: Any) -> tuple[Any, ...]:
    """Return a value that is a list of records; () for any other value."""
    return value if type(value) is tuple and value and is_record(type(value[0])) else ()


@cache
def defaults_of(kind: type) -> dict[str, Any]:
    """Return the fields of a record, with their defaults; `Parameter.empty` for none."""
    return {name: each.default for name, each in signature(kind).parameters.items()}


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)
