"""Negative replies of typed services: the reason is a JSON object.

    {"error": "OutOfStock", "message": "…", "data": {"sku": "a", "left": 1}}
    {"error": "BadRequest", "message": "…", "path": "$.count", "reason": "expected int, got str"}

Other callers see it as the text of their `RemoteFailure`. Source: docs/protocols/typed.md, section
"Negative replies".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any, Final, TypeVar, get_type_hints

import msgspec

from requite.errors import (
    BadRequest,
    CallError,
    ConfigurationError,
    NoService,
    RemoteFailure,
    RequiteError,
)
from requite.typed.codec import FLAWS, JSON, Flaw

F = TypeVar("F", bound=Callable[..., Any])

DATA_SIZE_MAX: Final = 64 * 1024
"""Bytes of a declared error; a larger one reaches its caller without its data."""

_BEGINS: Final = '{"error":'
_BAD_REQUEST: Final = BadRequest.__name__
_NO_METHOD: Final = NoService.__name__
_REMOTE: Final = RemoteFailure.__name__
_DECLARED: Final = "__requite_errors__"


class DeclaredError:
    """An exception class that callers get as itself, with its data.

    The data are the fields of a dataclass; any other exception has its text only.
    """

    def __init__(self, kind: Any) -> None:
        self.kind: type[Exception] = kind
        self.name: str = kind.__name__
        self.doc = (kind.__doc__ or "").strip() if "__doc__" in vars(kind) else ""
        self.data: type[msgspec.Struct] | None = _struct_of(self.name, kind)
        if self.doc.startswith(f"{self.name}("):  # that of a dataclass without one
            self.doc = ""
        self._decode = JSON.decoder(Any if self.data is None else self.data)

    def text_of(self, error: Exception) -> str:
        """Return an error of this class as the reason of a negative reply."""
        told: dict[str, Any] = {"error": self.name, "message": _message_of(error)}
        if self.data is not None:
            names = self.data.__struct_fields__
            told["data"] = self.data(**{name: getattr(error, name) for name in names})
            text = JSON.encode(told)
            self._decode(JSON.encode(told["data"]))  # as the caller will
        else:
            text = JSON.encode(told)
        if len(text) > DATA_SIZE_MAX:
            raise ValueError(f"{self.name} has {len(text)} bytes; the maximum is {DATA_SIZE_MAX}")
        return text.decode()

    def rebuilt(self, told: Mapping[str, Any]) -> Exception:
        """Return the error of a negative reply. Raises what the codec raises for other data."""
        if self.data is None:
            return self.kind(str(told.get("message", "")))
        data: Any = self._decode(JSON.encode(told.get("data")))
        return self.kind(**{name: getattr(data, name) for name in self.data.__struct_fields__})


@cache  # one class for each, however many methods declare it
def _struct_of(name: str, kind: Any) -> type[msgspec.Struct] | None:
    """Return a class with the fields of a dataclass, None for any other class."""
    columns: list[Any] = []
    if not is_dataclass(kind):
        return None
    hints = get_type_hints(kind)
    for field in fields(kind):
        if field.init:
            default = _default(field)
            column = (field.name, hints[field.name])
            columns.append(column if default is MISSING else (*column, default))
    return msgspec.defstruct(name, columns, kw_only=True, module=kind.__module__)


def _default(field: Any) -> Any:
    if field.default_factory is not MISSING:
        return msgspec.field(default_factory=field.default_factory)
    return field.default


def _message_of(error: Any) -> str:
    """Return an error's text; for a dataclass without a text of its own, its fields."""
    has_text = "__str__" in vars(type(error))
    return repr(error) if is_dataclass(error) and not has_text else str(error)


def declared(errors: Iterable[Any], whose: str) -> dict[str, DeclaredError]:
    """Return errors by name. Raises `ConfigurationError` for what cannot be declared."""
    known: dict[str, DeclaredError] = {}
    for kind in errors:
        if not (isinstance(kind, type) and issubclass(kind, Exception)):
            raise ConfigurationError(f"{whose} declares {kind!r}, which is not an exception class")
        if kind.__module__.startswith("requite.") and issubclass(kind, RequiteError):
            raise ConfigurationError(
                f"{whose} declares {kind.__name__}, which callers get anyway; declare your own"
            )
        if kind.__name__ in (*known, _BAD_REQUEST, _NO_METHOD, _REMOTE):
            raise ConfigurationError(f"{whose} declares two errors named {kind.__name__}")
        try:
            known[kind.__name__] = DeclaredError(kind)
        except TypeError as error:
            raise ConfigurationError(f"{whose} declares {kind.__name__}: {error}") from error
    return known


def raises(*errors: type[Exception]) -> Callable[[F], F]:
    """Declare the errors of a method of a class that a client binds.

    class Orders(Protocol):
        @requite.raises(OutOfStock)
        async def price(self, order: Order) -> Quote: ...
    """

    def declare(function: F) -> F:
        setattr(function, _DECLARED, errors)
        return function

    return declare


def raised_by(function: Callable[..., Any]) -> tuple[type[Exception], ...]:
    """Return the errors that `raises` has declared."""
    found: tuple[type[Exception], ...] = getattr(function, _DECLARED, ())
    return found


# --- at the worker --------------------------------------------------------------------------------
def bad_request(flaw: Flaw) -> RemoteFailure:
    """Return the refusal of a request that does not fit its method."""
    told = {"error": _BAD_REQUEST, "message": f"{flaw.path}: {flaw.reason}", **flaw._asdict()}
    return final(JSON.encode(told).decode())


def final(reason: str) -> RemoteFailure:
    """Return a refusal that the service would give each time."""
    failure = RemoteFailure(reason)
    failure.is_final = True
    return failure


KEY_REUSED: Final = str(
    bad_request(Flaw("$", "its idempotency key, or call id, was used before, with another body"))
).encode()
"""The refusal of a request with the key of another one."""


def no_method(name: str) -> RemoteFailure:
    """Return the refusal of a request for a method that the service does not have."""
    told = {"error": _NO_METHOD, "message": f"this service has no method {name!r}"}
    return RemoteFailure(JSON.encode(told).decode())


def unambiguous(failure: RemoteFailure) -> RemoteFailure:
    """Return a failure that a handler raised, so that its text is no error of another kind. That of
    a call that it has made is sent with its type in front (`requite.worker.runner.reason_of`)."""
    text = str(failure)
    if failure.attempts or not text.startswith("{"):
        return failure
    return RemoteFailure(JSON.encode({"error": _REMOTE, "message": text}).decode())


# --- at the client --------------------------------------------------------------------------------
def error_of(failure: RemoteFailure, known: Mapping[str, DeclaredError]) -> Exception:
    """Return the error that a negative reply stands for; `failure` itself if it is none of ours."""
    told = told_by(failure)
    try:
        error = failure if told is None else _error(told, failure, known)
    except FLAWS:
        return failure
    if isinstance(error, CallError):
        error.request_id = failure.request_id
    return error


def told_by(failure: RemoteFailure) -> dict[str, Any] | None:
    """Return the object that a negative reply of a typed service is; None for any other one."""
    text = str(failure)
    if not text.startswith(_BEGINS):
        return None
    try:
        told: dict[str, Any] = msgspec.json.decode(text.encode(), type=dict[str, Any])
    except FLAWS:
        return None
    return told if isinstance(told["error"], str) else None


def _error(
    told: Mapping[str, Any], failure: RemoteFailure, known: Mapping[str, DeclaredError]
) -> Exception:
    name, attempts = told["error"], failure.attempts
    message = str(told.get("message", ""))
    if name == _BAD_REQUEST:
        return BadRequest(
            message,
            path=str(told.get("path", "$")),
            reason=str(told.get("reason", message)),
            may_have_executed=False,
            attempts=attempts,
        )
    if name == _NO_METHOD:
        return NoService(message, may_have_executed=False, attempts=attempts)
    if name not in known:
        text = message if name == _REMOTE else f"{name}: {message}"
        return RemoteFailure(text, attempts=attempts)
    error = known[name].rebuilt(told)
    if isinstance(error, CallError):
        error.may_have_executed, error.attempts = failure.may_have_executed, attempts
    return error
