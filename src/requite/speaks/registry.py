"""Map URL schemes to protocols, and protocols to the plans of clients and workers.

Only `parse_url` makes a `ServiceUrl` from text. A new protocol adds a file to this folder and its
schemes to `SCHEMES`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, Final, Protocol, cast

from requite.errors import ConfigurationError
from requite.request import RetryPolicy
from requite.speaks.endpoints import Endpoints, Urls
from requite.speaks.guess import explain
from requite.speaks.plans import (
    Carries,
    ClientPlan,
    ClientSettings,
    S,
    ServicePlan,
    WorkerSettings,
)
from requite.speaks.url import Scheme, ServiceUrl, read_parts, redact, refuse

# In the order in which error messages list them.
SCHEMES: Final = {
    "mdp": "mdp",
    "mdp+tls": "mdp",
    "mdp+ipc": "mdp",
    "mdp+inproc": "mdp",
    "sp+tcp": "sp",
    "sp+ipc": "sp",
    "sp+tls": "sp",
    "sp+ws": "sp",
    "sp+wss": "sp",
    "sp+inproc": "sp",
    "inproc": "sp",
    "pirate": "pirate",
    "pirate+tls": "pirate",
    "pirate+ipc": "pirate",
    "pirate+inproc": "pirate",
    "amqp": "amqp",
    "amqps": "amqp",
    "flp": "flp",
    "flp+tls": "flp",
    "flp+ipc": "flp",
    "flp+inproc": "flp",
}
"""The protocol of each scheme; it is also the name of the protocol's file in this folder."""


class Spoken(Protocol):
    """The interface of a protocol's file."""

    SCHEMES: Mapping[str, Scheme]

    def check_url(self, url: ServiceUrl, *, listening: bool, shown: str) -> ServiceUrl:
        """Validate and interpret the URL's options. Raises `ConfigurationError`, which quotes
        `shown` (the URL without a password), for what the protocol does not support."""

    def carries(self, endpoints: Endpoints, dialect: str | None) -> Carries:
        """Return what messages carry besides their bodies at these URLs."""

    def client_plan(self, endpoints: Endpoints, settings: ClientSettings) -> ClientPlan:
        """Plan a client. Raises `ConfigurationError` for settings that cannot work."""

    def service_plans(
        self, endpoints: Endpoints, services: Sequence[S], settings: WorkerSettings
    ) -> list[ServicePlan[S]]:
        """Plan a worker with at least one service. Raises `ConfigurationError` for settings that
        cannot work."""


def spoken(protocol: str) -> Spoken:
    """Import a protocol's file and return it."""
    return cast(Spoken, import_module(f"requite.speaks.{protocol}"))


def parse_url(text: str, *, listening: bool = False) -> ServiceUrl:
    """Parse the URL of a service to dial, or with `listening` of addresses to listen at: then `*`
    is all addresses of the machine (or a free name) and port 0 is a free port.

    Raises `ConfigurationError`, which quotes the URL without its password.
    """
    shown = redact(text)
    name, separator, rest = text.partition("://")
    protocol = SCHEMES.get(name)
    if not separator or protocol is None:
        refuse(shown, _guess(shown, listening=listening))
    home = spoken(protocol)
    url = read_parts(protocol, home.SCHEMES[name], rest, shown)
    return home.check_url(url, listening=listening, shown=shown)


def _guess(shown: str, *, listening: bool) -> str:
    def can_be_read(guess: str) -> bool:
        try:
            parse_url(guess, listening=listening)
        except ConfigurationError:
            return False
        return True

    return explain(shown, tuple(SCHEMES), can_be_read, listening=listening)


def read_endpoints(url: Urls, bind: Urls = ()) -> Endpoints:
    """Parse the URLs to dial and to listen at. Raises `ConfigurationError`."""
    endpoints = Endpoints(
        tuple(map(parse_url, _several(url))),
        tuple(parse_url(each, listening=True) for each in _several(bind)),
    )
    protocols = sorted({each.protocol for each in endpoints.dials + endpoints.binds})
    if not protocols:
        raise ConfigurationError(
            "no URL was given; pass a URL to connect to, or a URL to listen at (bind)"
        )
    if len(protocols) > 1:
        raise ConfigurationError(
            f"all URLs must have the same protocol; these have {' and '.join(protocols)}"
        )
    return endpoints


def _several(urls: Urls) -> Sequence[str]:
    is_single = isinstance(urls, str | bytes | bytearray) or not isinstance(urls, Sequence)
    several: Sequence[Any] = (urls,) if is_single else urls
    for each in several:
        if not isinstance(each, str):
            raise ConfigurationError(f"a URL must be a str, not {_kind_of(each)}")
    return tuple(several)


def _kind_of(what: object) -> str:
    return "None" if what is None else f"{what!r} ({type(what).__name__})"


def carries(endpoints: Endpoints, dialect: str | None) -> Carries:
    """Return what messages carry besides their bodies at these URLs. `dialect`: that of MDP, if it
    is not in the URL."""
    return spoken(endpoints.protocol).carries(endpoints, dialect)


def client_plan(endpoints: Endpoints, settings: ClientSettings) -> ClientPlan:
    """Make a client's plan. Raises `ConfigurationError` for settings that cannot work."""
    if not isinstance(settings.retry, RetryPolicy | None):
        raise ConfigurationError(
            f"retry must be a RetryPolicy, not {settings.retry!r}; use RetryPolicy(attempts=...)"
        )
    if not isinstance(settings.hold_back, float | int | None):
        raise ConfigurationError(
            f"hold_back must be a number from 0 to below 1, not {settings.hold_back!r}"
        )
    return spoken(endpoints.protocol).client_plan(endpoints, settings)


def service_plans(
    endpoints: Endpoints, services: Sequence[S], settings: WorkerSettings
) -> list[ServicePlan[S]]:
    """Make the plans of a worker with at least one service. Raises `ConfigurationError` for
    settings that cannot work."""
    return spoken(endpoints.protocol).service_plans(endpoints, services, settings)
