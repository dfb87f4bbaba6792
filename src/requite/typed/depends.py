"""Dependencies: parameters of a method that other functions make.

    async def account(context: requite.Context) -> Account: ...

    @orders.method
    async def price(order: Order, who: Annotated[Account, requite.Depends(account)]) -> Quote: ...

The function has no parameters but a `Context` and dependencies of its own. It runs once per request
however many parameters ask for it, or once per worker with `per="worker"`.
"""

from __future__ import annotations

import inspect
from asyncio import Lock
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args, get_origin

from requite.errors import ConfigurationError
from requite.typed.context import Context
from requite.typed.hints import hints_of


@dataclass(frozen=True, slots=True)
class Depends:
    """The value of a parameter is what `function` returns, as a function or coroutine function.

    `per`: "request" calls it once for each request, "worker" once in the life of a worker. What
    must also be closed belongs in the service's `lifespan`.
    """

    function: Callable[..., Any]
    per: Literal["request", "worker"] = "request"

    def __post_init__(self) -> None:
        if self.per not in ("request", "worker"):
            raise ConfigurationError(f"`per` is 'request' or 'worker', not {self.per!r}")
        function = self.function
        if not callable(function):
            raise ConfigurationError(f"Depends takes a function, not {function!r}")
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise ConfigurationError(
                f"{function.__name__} yields, but the function of Depends must return the value;"
                " what must be closed belongs in the service's lifespan"
            )


@dataclass(frozen=True, slots=True)
class Needs:
    """What a function takes besides its message: the name of its `Context` parameter, or "", and
    its dependencies by parameter, each with its own needs."""

    context: str
    dependencies: Mapping[str, tuple[Depends, Needs]]


def depends_in(hint: Any) -> Depends | None:
    """Return the `Depends` in an annotation, or None."""
    if get_origin(hint) is not Annotated:
        return None
    found = [each for each in get_args(hint)[1:] if isinstance(each, Depends)]
    return found[0] if found else None


def needs_of(function: Callable[..., Any], within: tuple[Any, ...] = ()) -> Needs:
    """Return the needs of a dependency. Raises `ConfigurationError` for other parameters, and for
    functions that depend on themselves."""
    name = getattr(function, "__name__", repr(function))
    if function in within:
        raise ConfigurationError(f"the dependency {name} depends on itself")
    hints = hints_of(function)
    context, dependencies = "", {}
    for parameter in inspect.signature(function).parameters.values():
        hint = hints.get(parameter.name)
        depends = depends_in(hint)
        if depends is not None:
            needs = needs_of(depends.function, (*within, function))
            if needs_request(needs) and depends.per == "worker":
                raise ConfigurationError(
                    f"the dependency {depends.function.__name__} is made once per worker, so it"
                    " cannot use the Context of a request"
                )
            dependencies[parameter.name] = (depends, needs)
        elif hint is Context:
            context = parameter.name
        elif parameter.default is inspect.Parameter.empty:
            raise ConfigurationError(
                f"the parameter {parameter.name!r} of the dependency {name} is neither a Context"
                " nor a Depends"
            )
    return Needs(context, dependencies)


def needs_request(needs: Needs) -> bool:
    """Whether something is made for each request."""
    return bool(needs.context) or any(
        depends.per == "request" or needs_request(inner)
        for depends, inner in needs.dependencies.values()
    )


class Resolver:
    """Makes the values of dependencies for one worker, and stores those made once."""

    def __init__(self) -> None:
        self._made: dict[Any, Any] = {}
        self._lock = Lock()

    async def keywords(self, needs: Needs, context: Context) -> dict[str, Any]:
        """Return the keyword arguments that a function needs for one request."""
        return await self._keywords(needs, context, {})

    async def _keywords(
        self, needs: Needs, context: Context, made: dict[Any, Any]
    ) -> dict[str, Any]:
        values = {
            name: await self._value(depends, inner, context, made)
            for name, (depends, inner) in needs.dependencies.items()
        }
        if needs.context:
            values[needs.context] = context
        return values

    async def _value(
        self, depends: Depends, needs: Needs, context: Context, made: dict[Any, Any]
    ) -> Any:
        function = depends.function
        if depends.per == "request":
            if function not in made:
                made[function] = await self._make(depends, needs, context, made)
            return made[function]
        if function not in self._made:
            async with self._lock:  # one request at a time makes it
                if function not in self._made:
                    self._made[function] = await self._make(depends, needs, context, self._made)
        return self._made[function]

    async def _make(
        self, depends: Depends, needs: Needs, context: Context, made: dict[Any, Any]
    ) -> Any:
        value = depends.function(**await self._keywords(needs, context, made))
        return await value if inspect.isawaitable(value) else value
