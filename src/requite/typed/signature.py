"""Read what a method takes and returns from its annotations."""

from __future__ import annotations

import inspect
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Generator,
    Iterable,
    Iterator,
)
from dataclasses import dataclass
from typing import Any, Final, TypedDict, Unpack, get_args, get_origin

from requite.errors import ConfigurationError
from requite.request import Deadline, Request
from requite.typed.context import Context
from requite.typed.depends import Depends, Needs, depends_in, needs_of, needs_request
from requite.typed.hints import hints_of


class CallOptions(TypedDict, total=False):
    """The options of a bound method's call.

        class Orders(Protocol):
            async def price(
                self, order: Order, **options: Unpack[requite.CallOptions]
            ) -> Quote: ...

    `AsyncClient.call` describes them.
    """

    timeout: float | Deadline | None
    idempotent: bool
    idempotency_key: bytes


OPTIONS: Final = tuple(CallOptions.__annotations__)
"""The keyword arguments of a bound method that are options of its call."""

_ASYNC: Final = (AsyncIterator, AsyncIterable, AsyncGenerator)
_SYNC: Final = (Iterator, Iterable, Generator)
_MISSING: Final = inspect.Parameter.empty


@dataclass(frozen=True, slots=True)
class Signature:
    """What a method takes and returns.

    `input` is the annotation of the message, None for a method without one, and `parameter` its
    name. `output` is that of the reply or, if the method `streams`, of each partial reply.
    """

    name: str
    doc: str
    input: Any
    parameter: str
    output: Any
    streams: bool
    needs: Needs


def handler_signature(function: Callable[..., Any]) -> Signature:
    """Return the signature of a method of a service. Raises `ConfigurationError`."""
    name = _name_of(function)
    hints = hints_of(function)
    context, dependencies = "", dict[str, tuple[Depends, Needs]]()
    messages: list[inspect.Parameter] = []
    for parameter in inspect.signature(function).parameters.values():
        hint = hints.get(parameter.name)
        depends = depends_in(hint)
        if depends is not None:
            dependencies[parameter.name] = (depends, needs_of(depends.function))
        elif hint is Context:
            context = parameter.name
        else:
            messages.append(parameter)
    for depends, needs in dependencies.values():
        if depends.per == "worker" and needs_request(needs):
            raise ConfigurationError(
                f"the dependency {_name_of(depends.function)} is made once per worker, so it cannot"
                " use the Context of a request"
            )
    streams = inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function)
    return _signature(function, name, hints, messages, streams, Needs(context, dependencies))


def method_signature(function: Callable[..., Any], *, is_async: bool) -> Signature:
    """Return the signature of a method of a `Protocol` class that an asynchronous or a blocking
    client binds. Raises `ConfigurationError`."""
    name = _name_of(function)
    hints = hints_of(function)
    messages = [
        parameter
        for parameter in list(inspect.signature(function).parameters.values())[1:]
        if not _is_option(parameter, hints)
    ]
    streams = get_origin(hints.get("return")) in (_ASYNC if is_async else _SYNC)
    is_coroutine = inspect.iscoroutinefunction(function)
    if streams and is_coroutine:
        raise ConfigurationError(
            f"{name} has partial replies, so it is declared with `def`, not with `async def`"
        )
    if is_coroutine is not (is_async and not streams):
        kind, word = ("an AsyncClient", "async def") if is_async else ("a Client", "def")
        raise ConfigurationError(f"{kind} needs {word} {name}(...) in the class that it binds")
    return _signature(function, name, hints, messages, streams, Needs("", {}))


def _is_option(parameter: inspect.Parameter, hints: dict[str, Any]) -> bool:
    """Whether a parameter of a class to bind stands for options of the call."""
    if parameter.kind is parameter.VAR_KEYWORD:
        return bool(hints.get(parameter.name) == Unpack[CallOptions])
    return parameter.kind is parameter.KEYWORD_ONLY and parameter.name in OPTIONS


def _signature(
    function: Callable[..., Any],
    name: str,
    hints: dict[str, Any],
    messages: list[inspect.Parameter],
    streams: bool,
    needs: Needs,
) -> Signature:
    if len(messages) > 1:
        raise ConfigurationError(
            f"{name} has {len(messages)} messages ({', '.join(each.name for each in messages)});"
            " a method takes one: put the values into a class"
        )
    given, parameter = None, ""
    for message in messages:
        parameter = message.name
        if parameter not in hints:
            raise ConfigurationError(f"the parameter {parameter!r} of {name} has no annotation")
        if message.kind in (message.VAR_POSITIONAL, message.VAR_KEYWORD, message.KEYWORD_ONLY):
            raise ConfigurationError(f"the parameter {parameter!r} of {name} must be positional")
        if message.default is not _MISSING:
            raise ConfigurationError(
                f"the parameter {parameter!r} of {name} has a default, which no request would use:"
                " remove it; a field of a message may have one, so put the value into a class"
            )
        given = hints[parameter]
    if "return" not in hints:
        raise ConfigurationError(f"{name} has no annotation of what it returns")
    output = hints["return"]
    if output is None.__class__:
        output = None
    iterates = get_origin(output) in (*_ASYNC, *_SYNC)
    if iterates is not streams:
        hint = "AsyncIterator[T] or Iterator[T]" if streams else "T, or yield in it"
        raise ConfigurationError(f"{name} must be annotated to return {hint}, not {output}")
    if streams:
        output = get_args(output)[0]
    if output is Request:
        raise ConfigurationError(f"{name} cannot return a Request")
    doc = inspect.cleandoc(function.__doc__ or "")
    return Signature(name, doc, given, parameter, output, streams, needs)


def _name_of(function: Any) -> str:
    name: str = getattr(function, "__name__", type(function).__name__)
    return name
