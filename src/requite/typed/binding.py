"""Bind a `Protocol` class: its methods become typed calls of a client."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import aclosing, closing
from typing import Any, Final, NamedTuple, Protocol

from requite.errors import BadReply, ConfigurationError, LocalViolation, RemoteFailure
from requite.request import Deadline, Partial, Reply, Request
from requite.shell import clock
from requite.speaks.plans import Carries
from requite.typed.codec import codec_of
from requite.typed.context import Context, Middleware, chained
from requite.typed.durable import STEPS, Steps
from requite.typed.envelope import wrap_request
from requite.typed.messages import check_types, reply_reader, request_writer, unwrapping
from requite.typed.names import prefix_of
from requite.typed.refusals import DeclaredError, declared, error_of, raised_by
from requite.typed.signature import OPTIONS, Signature, method_signature

_MISSING: Final = object()


class Caller(Protocol):
    """The part of a client that bound methods need; asynchronous or blocking."""

    @property
    def call(self) -> Callable[..., Any]: ...

    @property
    def stream(self) -> Callable[..., Any]: ...


class Options(NamedTuple):
    """How a class is bound; see `AsyncClient.bind`."""

    service: str
    version: str
    codec: str
    middleware: Sequence[Middleware]
    carries: Carries
    is_async: bool


def bind(caller: Caller, protocol: Any, options: Options) -> Any:
    """Return an object with a method for each one of a `Protocol` class. Raises
    `ConfigurationError` for a class, or a URL, that cannot be bound."""
    carries = options.carries
    if carries.names and not carries.refusals:
        raise ConfigurationError(
            "MDP before 0.3 has no negative replies, which typed services need; use MDP 0.3"
        )
    if not options.service:
        raise ConfigurationError(
            "the service is missing; name it in the URL (mdp://host/orders), or pass it:"
            " bind(Orders, 'orders')"
        )
    methods = {
        name: _BoundMethod(caller, function, options)
        for name, function in _functions_of(protocol).items()
    }
    bound = type(protocol.__name__, (_Bound,), {"__slots__": tuple(methods)})()
    for name, method in methods.items():
        setattr(bound, name, method.function())
    return bound


class _Bound:
    """The base of bound objects."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}, bound: {', '.join(self.__slots__)}>"


def _functions_of(protocol: Any) -> dict[str, Callable[..., Any]]:
    """Return the methods of a class and its bases."""
    found: dict[str, Callable[..., Any]] = {}
    if not (isinstance(protocol, type) and getattr(protocol, "_is_protocol", False)):
        raise ConfigurationError(f"bind takes a class that derives from Protocol, not {protocol!r}")
    for base in reversed(protocol.__mro__):
        if not getattr(base, "_is_protocol", False) or base is Protocol:
            continue
        for name, value in vars(base).items():
            if name.startswith("_"):
                continue
            if not callable(value) or isinstance(value, type):
                raise ConfigurationError(f"{protocol.__name__}.{name} is not a method")
            found[name] = value
    if not found:
        raise ConfigurationError(f"{protocol.__name__} has no methods to call")
    return found


class _BoundMethod:
    """One method, on the way to becoming a function."""

    def __init__(self, caller: Caller, declaration: Callable[..., Any], options: Options) -> None:
        signature = method_signature(declaration, is_async=options.is_async)
        whose = f"{options.service}.{signature.name}"
        check_types(signature, whose)
        if signature.input is Request:
            raise ConfigurationError(f"{whose} takes a Request, which only methods of workers can")
        codec = codec_of(options.codec)
        prefix = prefix_of(options.service, options.version)
        address = f"{prefix}.{signature.name}"
        carries = options.carries
        if signature.streams and not (carries.partials and carries.refusals):
            raise ConfigurationError(
                f"{whose} has partial replies, which the protocol of the URL does not carry; use"
                " MDP 0.3 or RabbitMQ"
            )
        self._caller = caller
        self._options = options
        self._signature: Signature = signature
        self._address = address
        self._service = address if carries.names else None
        self._errors = declared(raised_by(declaration), whose)
        write = request_writer(codec, signature)
        self._write = write if carries.names else lambda value: wrap_request(address, write(value))
        read = reply_reader(codec, signature)
        self._read = read if carries.refusals else unwrapping(read, self._errors)

    def function(self) -> Callable[..., Any]:
        """Return the function that makes a call."""
        if self._options.middleware:
            function: Callable[..., Any] = _within_middleware(
                self._plain(), self._signature, self._options
            )
        else:
            function = self._plain()
        setattr(function, STEPS, self._steps())
        function.__name__ = function.__qualname__ = self._signature.name
        function.__doc__ = self._signature.doc or f"Call {self._address}."
        return function

    def _steps(self) -> Steps:
        """Return what durable requests need."""
        refusal = ""
        if self._service is None:
            refusal = "cannot be stored: durable requests need an MDP broker"
        elif self._signature.streams:
            refusal = "has partial replies, which durable requests do not"
        elif self._options.middleware:
            refusal = "was bound with middleware, which durable requests do not pass; bind without"
        message_of, errors = _message_of(self._signature), self._errors

        def take(value: Any = _MISSING, /, **options: Any) -> tuple[Any, dict[str, Any]]:
            return message_of(value, _without_options(options)), options

        return Steps(
            self._caller,
            self._address,
            take,
            self._write,
            self._read,
            lambda failure: _told(failure, errors),
            refusal,
        )

    def _plain(self) -> Callable[..., Any]:
        make = {
            (True, False): _call_async,
            (False, False): _call,
            (True, True): _stream_async,
            (False, True): _stream,
        }[self._options.is_async, self._signature.streams]
        send = self._caller.stream if self._signature.streams else self._caller.call
        message = _message_of(self._signature)
        return make(send, self._service, self._write, self._read, self._errors, message)


def _message_of(signature: Signature) -> Callable[[str, dict[str, Any]], Any]:
    """Return the function that finds the message of a call that was not made with the message
    alone; it raises `TypeError`."""
    name, parameter = signature.name, signature.parameter

    def message_of(value: Any, named: dict[str, Any]) -> Any:
        given = dict(named)
        if value is _MISSING and parameter:
            value = given.pop(parameter, _MISSING)
            if value is _MISSING:
                raise TypeError(f"{name}() misses the argument {parameter!r}")
        elif value is not _MISSING and not parameter:
            raise TypeError(f"{name}() takes no message")
        if given:
            raise TypeError(f"{name}() got the unexpected arguments {', '.join(given)}")
        return None if value is _MISSING else value

    return message_of


Send = Callable[..., Any]
Write = Callable[[Any], bytes]
Read = Callable[[bytes, int], Any]
Errors = dict[str, DeclaredError]
MessageOf = Callable[..., Any]


def _call_async(
    send: Send, service: str | None, write: Write, read: Read, errors: Errors, message_of: MessageOf
) -> Callable[..., Any]:
    async def call(
        value: Any = _MISSING,
        /,
        *,
        timeout: Any = ...,  # noqa: ASYNC109 - the call itself keeps it, beyond this process
        idempotent: bool = True,
        idempotency_key: bytes = b"",
        **named: Any,
    ) -> Any:
        if value is _MISSING or named:
            value = message_of(value, named)
        body = write(value)
        try:
            reply: Reply = await send(
                body,
                timeout=timeout,
                service=service,
                idempotent=idempotent,
                idempotency_key=idempotency_key,
            )
        except RemoteFailure as failure:
            raise _told(failure, errors) from failure.__cause__
        return read(reply.body, reply.attempts)

    return call


def _call(
    send: Send, service: str | None, write: Write, read: Read, errors: Errors, message_of: MessageOf
) -> Callable[..., Any]:
    def call(
        value: Any = _MISSING,
        /,
        *,
        timeout: Any = ...,
        idempotent: bool = True,
        idempotency_key: bytes = b"",
        **named: Any,
    ) -> Any:
        if value is _MISSING or named:
            value = message_of(value, named)
        body = write(value)
        try:
            reply: Reply = send(
                body,
                timeout=timeout,
                service=service,
                idempotent=idempotent,
                idempotency_key=idempotency_key,
            )
        except RemoteFailure as failure:
            raise _told(failure, errors) from failure.__cause__
        return read(reply.body, reply.attempts)

    return call


def _stream_async(
    send: Send, service: str | None, write: Write, read: Read, errors: Errors, message_of: MessageOf
) -> Callable[..., Any]:
    async def stream(value: Any = _MISSING, /, **options: Any) -> AsyncIterator[Any]:
        value = message_of(value, _without_options(options))
        parts = send(write(value), service=service, **options)
        try:
            async with aclosing(parts):
                async for part in parts:
                    if isinstance(part, Partial):
                        yield read(part.body, 1)
        except RemoteFailure as failure:
            raise _told(failure, errors) from failure.__cause__

    return stream


def _stream(
    send: Send, service: str | None, write: Write, read: Read, errors: Errors, message_of: MessageOf
) -> Callable[..., Any]:
    def stream(value: Any = _MISSING, /, **options: Any) -> Iterator[Any]:
        value = message_of(value, _without_options(options))
        parts = send(write(value), service=service, **options)
        try:
            with closing(parts):
                for part in parts:
                    if isinstance(part, Partial):
                        yield read(part.body, 1)
        except RemoteFailure as failure:
            raise _told(failure, errors) from failure.__cause__

    return stream


def _without_options(given: dict[str, Any]) -> dict[str, Any]:
    """Remove the arguments that are no options of a call, and return them."""
    return {name: given.pop(name) for name in list(given) if name not in OPTIONS}


def _told(failure: RemoteFailure, errors: Errors) -> Exception:
    """Return what the caller gets for a negative reply."""
    return failure if isinstance(failure, BadReply) else error_of(failure, errors)


# --- middleware -----------------------------------------------------------------------------------
def _within_middleware(
    plain: Callable[..., Any], signature: Signature, options: Options
) -> Callable[..., Any]:
    message_of = _message_of(signature)
    middleware = tuple(options.middleware)

    def started(value: Any, given: dict[str, Any]) -> Coroutine[Any, Any, Any]:
        message = message_of(value, _without_options(given))

        async def last(message: Any, _context: Context) -> Any:
            result = plain(*((message,) if signature.parameter else ()), **given)
            return await result if isinstance(result, Awaitable) else result

        run: Any = chained(middleware, last)
        context = Context(
            options.service, options.version, signature.name, _request(options, given), None
        )
        running: Coroutine[Any, Any, Any] = run(message, context)
        return running

    if not options.is_async:

        def call(value: Any = _MISSING, /, **given: Any) -> Any:
            return _without_loop(started(value, given))

        return call
    if signature.streams:

        async def stream(value: Any = _MISSING, /, **given: Any) -> AsyncIterator[Any]:
            async with aclosing(await started(value, given)) as parts:
                async for part in parts:
                    yield part

        return stream

    async def call_async(value: Any = _MISSING, /, **given: Any) -> Any:
        return await started(value, given)

    return call_async


def _request(options: Options, given: dict[str, Any]) -> Request:
    """Return the request that a client's `Context` describes."""
    timeout = given.get("timeout", ...)
    if isinstance(timeout, Deadline):
        timeout = timeout.at - clock.now()
    return Request(
        options.service,
        (),
        remaining_s=timeout if isinstance(timeout, int | float) else None,
        idempotency_key=given.get("idempotency_key", b""),
    )


def _without_loop(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run middleware around a blocking call: it may await what it is given, and nothing else."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    coroutine.close()
    raise LocalViolation(
        "the middleware of a blocking client awaits something besides `proceed`; use AsyncClient"
    )
