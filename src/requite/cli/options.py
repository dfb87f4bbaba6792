"""Options that several verbs take, so that they are called and explained the same everywhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

from cyclopts import ArgumentCollection, Group, Parameter, validators

from requite.cli.credentials import CREDENTIALS_FILE_VARIABLE, read_one_user, with_user
from requite.cli.failures import has_users
from requite.cli.logs import LogFormat, start_logging
from requite.errors import ConfigurationError

CALLS: Final = Group("Calls", sort_key=10)
CONNECTION: Final = Group("Connection", sort_key=80)
JOURNAL: Final = Group("Journal", sort_key=85)
OUTPUT: Final = Group("Output", sort_key=90)

JsonFlag = Annotated[
    bool,
    Parameter(
        name="--json",
        show_default=False,
        group=OUTPUT,
        help="One object for machines, on the last line of stdout.",
    ),
]
JournalFolder = Annotated[
    Path | None,
    Parameter(
        name="--journal",
        metavar="DIR",
        env_var="REQUITE_JOURNAL",
        group=JOURNAL,
        help="Write down in DIR what happens to each request, for `requite journal` and "
        "`requite spark run`. Any number of processes may share DIR.",
    ),
]
JournalPlace = Annotated[
    str,
    Parameter(
        name="--journal",
        metavar="DIR",
        help="The folder in which journals are, or where they were shipped to: `s3://…`, `gs://…`, "
        "`abfss://…`.",
    ),
]
LakePlace = Annotated[
    str,
    Parameter(
        name="--lake",
        metavar="DIR",
        help="Where the tables are: a folder that `spark run` makes or has made, or such as "
        "`s3://BUCKET/lake`.",
    ),
]
BrokerUrl = Annotated[str, Parameter(help="Where the broker is: `mdp://HOST:PORT`.")]
Timeout = Annotated[
    float,
    Parameter(
        metavar="SECONDS",
        group=CALLS,
        validator=validators.Number(gt=0),
        help="How long to wait for the final reply.",
    ),
]


def one_of(*names: str) -> Callable[[ArgumentCollection], None]:
    """Return what refuses a group of options in which none of these is given."""

    def check(arguments: ArgumentCollection) -> None:
        if not any(argument.tokens for argument in arguments if argument.name in names):
            ways = (name if name == "--pool" else f"{name} URL" for name in names)
            raise ValueError(f"Give {' or '.join(ways)}")

    return check


@Parameter(name="*", group=CONNECTION)
@dataclass(frozen=True, slots=True)
class Connection:
    """How to speak to a broker, and as whom. SP has neither dialects nor users."""

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
            help="One line, `user:password`, for a broker that asks for it.",
        ),
    ] = None

    def complete(self, url: str) -> str:
        """Return `url` with the credentials in it; `ConfigurationError` where it has none (SP)."""
        user = read_one_user(self.credentials_file)
        if user is not None and not has_users(url):
            raise ConfigurationError(
                "SP has no users and passwords: go without --credentials-file and"
                f" {CREDENTIALS_FILE_VARIABLE}; with sp+tls:// certificates are checked"
            )
        return url if user is None else with_user(url, user)


@Parameter(name="*", group=OUTPUT)
@dataclass(frozen=True, slots=True)
class Logging:
    """How much is logged, and how the lines look."""

    verbose: Annotated[
        int,
        Parameter(
            name=("--verbose", "-v"),
            count=True,
            negative="",
            show_default=False,
            help="Log what happens to stderr; twice (-vv): everything.",
        ),
    ] = 0
    log_format: Annotated[LogFormat, Parameter(help="How log lines look.")] = "text"

    def start(self) -> None:
        """Begin to log."""
        start_logging(self.verbose, self.log_format)


PLAIN: Final = Connection()
QUIET: Final = Logging()
