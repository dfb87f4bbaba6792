"""Options that several verbs share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from math import isfinite
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias

from cyclopts import ArgumentCollection, Group, Parameter, validators

from requite.cli.credentials import (
    CREDENTIALS_FILE_VARIABLE,
    CURVE_KEY_FILE_VARIABLE,
    CURVE_SERVER_KEY_VARIABLE,
    read_one_user,
    with_keys,
    with_user,
)
from requite.cli.failures import has_users
from requite.cli.logs import LogFormat, start_logging
from requite.core.liveness import HeartbeatPolicy
from requite.errors import ConfigurationError

CALLS: Final = Group("Calls", sort_key=10)
LIMITS: Final = Group("Limits", sort_key=30)
CONNECTION: Final = Group("Connection", sort_key=80)
JOURNAL: Final = Group("Journal", sort_key=85)
OUTPUT: Final = Group("Output", sort_key=90)

Validator: TypeAlias = Callable[[type, Any], None]


def within(make: Callable[[Any], object]) -> Validator:
    """Return a validator of an option: `make` builds the setting from the option's value, and
    raises `ConfigurationError` for one out of range. An option without a value passes."""

    def check(_type: type, value: Any) -> None:
        if value is None:
            return
        if isinstance(value, float) and not isfinite(value):
            raise ValueError(f"must be a finite number, not {value}")
        make(value)

    return check


def complete_ones(places: Iterable[str]) -> list[str]:
    """Return the addresses that need no further options: one with TLS and without a certificate
    waits for `--tls-certificate`."""
    return [
        place
        for place in places
        if place.partition("://")[0].rpartition("+")[2] not in ("tls", "wss")
        or "certificate=" in place
    ]


def _parse_urls(urls: str | tuple[str, ...], *, listening: bool) -> None:
    from requite.speaks.registry import parse_url  # imported late: it loads every protocol

    given = (urls,) if isinstance(urls, str) else urls
    for url in complete_ones(given) if listening else given:
        parse_url(url, listening=listening)


def in_mib(size: int) -> str:
    """Return a default of bytes, for help texts."""
    return f"{size >> 20} MiB"


POSITIVE: Final = validators.Number(gt=0)
INTERVAL: Final = within(lambda interval_s: HeartbeatPolicy(interval_s=interval_s))
LIVENESS: Final = within(lambda liveness: HeartbeatPolicy(liveness=liveness))
URLS: Final = within(partial(_parse_urls, listening=False))
BOUND_URLS: Final = within(partial(_parse_urls, listening=True))

JsonFlag = Annotated[
    bool,
    Parameter(
        name="--json",
        show_default=False,
        group=OUTPUT,
        help="Print the result as a JSON object on the last line of stdout.",
    ),
]
JournalFolder = Annotated[
    Path | None,
    Parameter(
        name="--journal",
        metavar="DIR",
        env_var="REQUITE_JOURNAL",
        group=JOURNAL,
        help="Record the events of each request in DIR, for `requite journal` and `requite spark "
        "run`. Any number of processes may share DIR.",
    ),
]
JournalPlace = Annotated[
    str,
    Parameter(
        name="--journal",
        metavar="DIR",
        help="Folder of the journals, or the store they were shipped to: `s3://…`, `gs://…`, "
        "`abfss://…`.",
    ),
]
LakePlace = Annotated[
    str,
    Parameter(
        name="--lake",
        metavar="DIR",
        help="Folder of the tables (`requite spark run` creates it), or a store: "
        "`s3://BUCKET/lake`.",
    ),
]
BrokerUrl = Annotated[
    str,
    Parameter(help="Address of the broker: `mdp://HOST:PORT` or `mdp+tls://HOST:PORT?ca=FILE`."),
]
MessageSizeMax = Annotated[
    int,
    Parameter(
        metavar="BYTES",
        group=LIMITS,
        validator=POSITIVE,
        show_default=in_mib,
        help="Close the connection of a larger message.",
    ),
]
Timeout = Annotated[
    float,
    Parameter(
        metavar="SECONDS",
        group=CALLS,
        validator=POSITIVE,
        help="How long to wait for the final reply.",
    ),
]


def one_of(*names: str) -> Callable[[ArgumentCollection], None]:
    """Return a validator that requires at least one of these options."""

    def check(arguments: ArgumentCollection) -> None:
        if not any(argument.tokens for argument in arguments if argument.name in names):
            ways = (name if name == "--pool" else f"{name} URL" for name in names)
            raise ValueError(f"Give {' or '.join(ways)}")

    return check


@Parameter(name="*", group=CONNECTION)
@dataclass(frozen=True, slots=True)
class Connection:
    """MDP version, credentials and keys for a broker. SP has none of them."""

    dialect: Annotated[
        Literal["0.3", "0.2", "0.1"] | None,
        Parameter(
            help="Version of MDP: 0.3 is requite's own (the default), 0.2 is RFC 18, 0.1 is RFC 7."
        ),
    ] = None
    credentials_file: Annotated[
        Path | None,
        Parameter(
            metavar="FILE",
            env_var=CREDENTIALS_FILE_VARIABLE,
            help="File of one line, `user:password`, for a broker that requires it.",
        ),
    ] = None

    curve_server_key: Annotated[
        str | None,
        Parameter(
            metavar="KEY",
            env_var=CURVE_SERVER_KEY_VARIABLE,
            allow_leading_hyphen=True,  # which Z85 has
            help="Public key of a broker with CURVE, in Z85, or a file that has it. Requires "
            "--curve-key-file.",
        ),
    ] = None
    curve_key_file: Annotated[
        Path | None,
        Parameter(
            metavar="FILE",
            env_var=CURVE_KEY_FILE_VARIABLE,
            help="File with the own secret key for CURVE, one line in Z85.",
        ),
    ] = None

    def complete(self, url: str) -> str:
        """Return `url` with the credentials in it. Raises `ConfigurationError` for protocols
        without them."""
        url = with_keys(url, self.curve_server_key, self.curve_key_file)
        user = read_one_user(self.credentials_file)
        if user is not None and not has_users(url):
            raise ConfigurationError(
                "SP has no users and passwords: remove --credentials-file and"
                f" {CREDENTIALS_FILE_VARIABLE}; use sp+tls://, which checks certificates"
            )
        return url if user is None else with_user(url, user)


@Parameter(name="*", group=OUTPUT)
@dataclass(frozen=True, slots=True)
class Logging:
    """Log level and format of log lines."""

    verbose: Annotated[
        int,
        Parameter(
            name=("--verbose", "-v"),
            count=True,
            negative="",
            validator=validators.Number(gte=0),
            show_default=False,
            help="Log events to stderr; -vv logs everything.",
        ),
    ] = 0
    log_format: Annotated[LogFormat, Parameter(help="Format of log lines.")] = "text"

    def start(self) -> None:
        """Start logging."""
        start_logging(self.verbose, self.log_format)


PLAIN: Final = Connection()
QUIET: Final = Logging()
