"""Calls of typed methods with `--json`: checked against the service's description, then sent."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from requite.cli.descriptions import describe_one
from requite.cli.failures import is_unsent
from requite.cli.replies import encode_body
from requite.errors import CallError, Denied, NoService, RemoteFailure, RemoteViolation
from requite.protocols.majordomo.wire import MMI_PREFIX
from requite.speaks.plans import Carries

if TYPE_CHECKING:
    from requite.client import AsyncClient
    from requite.typed.checking import JsonMethod

_NOT_TYPED: Final = (MMI_PREFIX.decode(), "titanic.")


@dataclass(frozen=True, slots=True)
class CheckedCall:
    """A request that fits its method. `streams`: there are partial replies. `shown` returns the
    members of an object that show a reply, given its body and the attempts of the call."""

    body: bytes
    streams: bool
    shown: Callable[[bytes, int], dict[str, Any]]


def is_method(service: str) -> bool:
    """Whether a name is that of a method of a typed service, which describes itself."""
    names = service.rpartition(".")
    return bool(names[0]) and names[2] != "describe" and not service.startswith(_NOT_TYPED)


async def check(
    client: AsyncClient, url: str, service: str, text: bytes, carried: Carries, timeout_s: float
) -> CheckedCall:
    """Fetch the description of a service, and check a request in JSON against it.

    Raises `BadRequest` for one that does not fit or that no method takes, `NoService` for a service
    without a description, `RemoteViolation` for a description that cannot be used, and the errors
    of calls. Nothing has been sent then.
    """
    try:
        described = await describe_one(client, url, service.rpartition(".")[0])
    except CallError as error:
        raise _undescribed(service, error) from error
    from requite.typed.checking import JsonMethod

    with _at_most(timeout_s, service):
        method = JsonMethod(described, service, carried)
        body = method.encode(text)
    return CheckedCall(body, method.streams, _showing(method))


def _undescribed(service: str, error: CallError) -> CallError:
    if is_unsent(error) or isinstance(error, Denied):
        return error
    if not isinstance(error, NoService | RemoteFailure):
        text = f"cannot get the description of {service}, so the request has not run: {error}"
        return error.reworded(text, may_have_executed=False)
    found = NoService(
        f"{service} has no description, so --json cannot check the request, which has not run"
        f" ({error}); leave out --json for a service of bytes, or serve it as a requite.Service",
        may_have_executed=False,
    )
    found.says_what_to_do = True
    return found


@contextmanager
def _at_most(seconds: float, service: str) -> Iterator[None]:
    """Interrupt the block after a time: regular expressions and references in the schema of a
    foreign service may take any."""

    def expire(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    except TimeoutError as error:
        raise RemoteViolation(
            f"the description of {service} cannot be used: its schema takes longer than"
            f" {seconds:g} s to check the request, which was not sent"
        ) from error
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _showing(method: JsonMethod) -> Callable[[bytes, int], dict[str, Any]]:
    def shown(body: bytes, attempts: int) -> dict[str, Any]:
        if not body and method.streams:  # the final reply
            return {"body": None, "encoding": "json"}
        value = method.decode(body, attempts)
        if isinstance(value, bytes):
            return encode_body(value)
        return {"body": value, "encoding": "json"}

    return shown
