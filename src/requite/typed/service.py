"""`Service`: a name, a version, and the functions that are its methods."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, TypeVar, overload

from requite.errors import ConfigurationError
from requite.request import Request
from requite.speaks.plans import Carries
from requite.typed.codec import JSON, Codec, codec_of
from requite.typed.context import Middleware
from requite.typed.description import description_of
from requite.typed.messages import check_types
from requite.typed.method import Method
from requite.typed.names import DESCRIBE, check_name, prefix_of
from requite.typed.refusals import declared
from requite.typed.serving import Serving
from requite.typed.signature import handler_signature
from requite.worker.handler import kind_of

if TYPE_CHECKING:
    from requite.dedup import Dedup

F = TypeVar("F", bound=Callable[..., Any])


class Service:
    """A typed service: its methods are functions whose annotations say what they take and return.

        orders = requite.Service("orders", version="1.2")

        @orders.method
        async def price(order: Order, context: requite.Context) -> Quote: ...

    `Worker` and `requite worker` serve all its methods, each under a service name of its own
    (`orders.price`; from version 2 on `orders.v2.price`), and `orders.describe`, which returns
    their description as JSON.

    - `version`: up to three numbers joined by dots; a change that callers notice raises the first.
    - `codec`: "json" or "msgpack", for messages and replies that are not bytes.
    - `middleware`: async functions around each call, the first one outermost (`Middleware`).
    - `lifespan`: an async context manager without arguments. A worker enters it before it serves
      and leaves it when it has closed; what it yields is `Context.state`.

    Raises `ConfigurationError` for a name, version or codec that cannot work.
    """

    def __init__(
        self,
        name: str,
        *,
        version: str = "1.0",
        codec: str = "json",
        middleware: Sequence[Middleware] = (),
        lifespan: Callable[[], AbstractAsyncContextManager[Any]] | None = None,
    ) -> None:
        check_name(name)
        self.name = name
        self.version = version
        self.prefix = prefix_of(name, version)
        self.codec: Codec = codec_of(codec)
        self.middleware = tuple(middleware)
        self.lifespan = lifespan
        self.methods: dict[str, Method] = {}

    def __repr__(self) -> str:
        return f"<Service {self.name} {self.version}: {', '.join(self.methods)}>"

    @overload
    def method(self, function: F, /) -> F: ...

    @overload
    def method(
        self,
        function: None = None,
        /,
        *,
        name: str | None = None,
        errors: Iterable[type[Exception]] = (),
        idempotent: Dedup | None = None,
    ) -> Callable[[F], F]: ...

    def method(
        self,
        function: F | None = None,
        /,
        *,
        name: str | None = None,
        errors: Iterable[type[Exception]] = (),
        idempotent: Dedup | None = None,
    ) -> F | Callable[[F], F]:
        """Make a function a method; with or without parentheses. The function is unchanged.

        It has at most one parameter for the message, and any number annotated with `Context` or
        `Depends`. It is `async def` or `def` (which runs in a thread), and yields its partial
        replies if it has some (`AsyncIterator[T]`, `Iterator[T]`). `bytes` is passed as it is, a
        parameter of `Request` gets the whole request.

        - `name`: of the method, if it is not the function's.
        - `errors`: exception classes that callers get as themselves, with their data if they are
          dataclasses. Any other exception is a `RemoteFailure`.
        - `idempotent`: stores replies, as in `requite.service`.

        Raises `ConfigurationError` for annotations that are missing or that no message can have.
        """
        if function is None:
            return functools.partial(
                self._add, name=name, errors=tuple(errors), idempotent=idempotent
            )
        return self._add(function)

    def _add(
        self,
        function: F,
        name: str | None = None,
        errors: tuple[type[Exception], ...] = (),
        idempotent: Dedup | None = None,
    ) -> F:
        signature = handler_signature(function)
        name = name or signature.name
        whose = f"{self.name}.{name}"
        if not name.isidentifier() or name == DESCRIBE:
            raise ConfigurationError(
                f"{name!r} cannot be the name of a method; pass another one:"
                " @service.method(name='...')"
            )
        if name in self.methods:
            raise ConfigurationError(f"the service {self.name!r} has two methods named {name!r}")
        check_types(signature, whose)
        self.methods[name] = Method(
            name,
            f"{self.prefix}.{name}",
            function,
            signature,
            kind_of(function),
            declared(errors, whose),
            idempotent,
        )
        return function

    def describe(self) -> dict[str, Any]:
        """Return the description of the service (docs/protocols/typed.md, "Descriptions").

        Raises `ConfigurationError` for two types that have the same name.
        """
        try:
            return description_of(
                self.name, self.version, self.codec.name, self.prefix, self.methods.values()
            )
        except TypeError as error:
            raise ConfigurationError(f"{self.name} cannot be described: {error}") from error

    def serve(self, carries: Carries) -> Serving:
        """Return what one worker serves. For `Worker`.

        Raises `ConfigurationError` for methods that its protocol cannot serve.
        """
        if not self.methods:
            raise ConfigurationError(
                f"the service {self.name!r} has no methods; decorate functions with @service.method"
            )
        description = JSON.encode(self.describe())

        async def describe(_request: Request) -> bytes:
            return description

        return Serving(
            self.name,
            self.version,
            self.prefix,
            self.codec,
            tuple(self.methods.values()),
            self.middleware,
            self.lifespan,
            describe,
            carries,
        )
