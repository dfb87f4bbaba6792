"""The parameters of a bulk call: checked on the driver, pickled, executed by tasks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Final
from uuid import UUID

from requite.client import AsyncClient
from requite.client.call_arguments import TIMEOUT_S, check_timeout
from requite.core.liveness import HeartbeatPolicy
from requite.errors import ConfigurationError
from requite.framing import Limits
from requite.request import RetryPolicy
from requite.speaks.plans import ClientSettings
from requite.speaks.registry import client_plan, read_endpoints

WINDOW: Final = 256  # requests in flight per task; more are hardly faster (bench)
COLUMNS: Final = {
    "reply": "binary",
    "status": "string",
    "attempts": "int",
    "elapsed_ms": "double",
    "may_have_executed": "boolean",
    "error": "string",
    "idempotency_key": "string",
}
STATUS: Final = list(COLUMNS).index("status")  # its index

_KEY: Final = bytes(16)  # as long as every request's

# Share of a row's time that is reserved for the broker's report of the outcome: only the broker
# knows whether a worker had the request. The timeout is the rest.
_HOLD_BACK: Final = 1 / 11

# Errors that another attempt may avoid. A poison request would crash more workers; nobody waits for
# a cancelled one.
RETRYABLE: Final = (
    "CallTimeout",
    "NoService",
    "Overloaded",
    "RemoteFailure",
    "TransportError",
    "WorkerLost",
)


@dataclass(frozen=True, slots=True)
class Connection:
    """Client settings; tasks of a process with equal settings share a client."""

    url: str
    service: str | None = None
    slots: int = WINDOW
    retry: RetryPolicy = RetryPolicy()  # noqa: RUF009 - frozen
    heartbeat: HeartbeatPolicy | float | None = None
    message_size_max: int = Limits().message_size_bytes_max

    @property
    def hold_back(self) -> float:
        """The share of each call's time that the deadline sent to the broker leaves out."""
        return _HOLD_BACK if read_endpoints(self.url).protocol == "mdp" else 0.0

    def open(self) -> AsyncClient:
        """Create a client; it connects on first use."""
        return AsyncClient(
            self.url,
            service=self.service,
            slots=self.slots,
            retry=self.retry,
            heartbeat=self.heartbeat,
            message_size_max=self.message_size_max,
            hold_back=self.hold_back,
        )

    def check(self, idempotent: bool) -> None:
        """Raise `ConfigurationError` for invalid settings, before any task starts."""
        endpoints = read_endpoints(self.url)
        settings = ClientSettings(self.retry, self.slots, self.heartbeat, None, 1, 1)
        traits = client_plan(endpoints, settings).traits
        traits.check_service(self.service or endpoints.service)
        traits.check(key=_KEY, partials=False, idempotent=idempotent)
        self.open()


@dataclass(frozen=True, slots=True)
class Plan:
    """The parameters of one bulk call.

    `body` and `key` are column numbers; `key` None: rows are identified by position. The first
    `kept` columns appear in the output. `scope` distinguishes positions in micro-batches of one
    job. With `give_up`, nothing more is sent once the service is down. `retry_on` lists the
    statuses after which a row is sent again. `rate` limits requests per second of a task; None: no
    limit. `report_to` is the folder for progress reports; None: no reports.
    """

    connection: Connection
    job: UUID
    body: int
    key: int | None
    kept: int
    timeout_s: float | None = TIMEOUT_S
    window: int = WINDOW
    idempotent: bool = True
    give_up: bool = True
    retry_on: frozenset[str] = frozenset()
    rate: float | None = None
    report_to: str | None = None
    prefix: str = ""
    scope: str = ""

    @property
    def patience_s(self) -> float:
        """How long the client waits for a reply or for the broker's error."""
        assert self.timeout_s is not None
        return self.timeout_s / (1 - self.connection.hold_back)

    @property
    def names(self) -> list[str]:
        """The names of the added columns."""
        return [self.prefix + name for name in COLUMNS]


def make_plan(plan: Plan) -> Plan:
    """Check a plan and return it; raise `ConfigurationError` if it is invalid."""
    if plan.timeout_s is None:
        raise ConfigurationError(
            "bulk calls require a timeout: Spark may end a task at any time, and without a"
            " timeout its requests would never end"
        )
    check_timeout(plan.timeout_s)
    check_counts(window=plan.window)
    check_statuses(plan.retry_on)
    plan.connection.check(plan.idempotent)
    return plan


def check_counts(**counts: object) -> None:
    """Raise `ConfigurationError` for a count that is not an integer of at least 1."""
    for name, count in counts.items():
        if count is not None and not (isinstance(count, int) and count >= 1):
            raise ConfigurationError(f"{name} must be an integer of at least 1, not {count!r}")


def check_statuses(names: Iterable[str]) -> None:
    """Raise `ConfigurationError` for a status that cannot be retried."""
    if unknown := sorted(set(names) - set(RETRYABLE)):
        raise ConfigurationError(
            f"retry_on cannot contain {', '.join(unknown)}; it may contain {', '.join(RETRYABLE)}"
        )


def share_of_rate(rate: float | None, task_slots: int) -> float | None:
    """Return the rate per task; raise `ConfigurationError` for an invalid rate."""
    if rate is None:
        return None
    if not 0 < rate < inf:
        raise ConfigurationError(
            f"rate must be a positive number of requests per second, not {rate!r}"
        )
    return rate / task_slots


def share(in_flight_max: int | None, task_slots: int, window: int) -> int:
    """Return the window of each task that keeps all tasks together within the cap.

    Raises `ConfigurationError` for a cap below one request per task.
    """
    if in_flight_max is None:
        return window
    if in_flight_max < task_slots:
        raise ConfigurationError(
            f"in_flight_max={in_flight_max} is less than one request for each of the {task_slots}"
            " tasks that may run at a time: raise it, or give the job fewer cores"
        )
    return min(window, in_flight_max // task_slots)


def check_clash(present: Sequence[str], prefix: str) -> None:
    """Raise `ConfigurationError` if an added column would have the name of a present one.

    Names are compared without regard to case, as Spark does.
    """
    lowered = [name.lower() for name in present]
    clashing = [prefix + name for name in COLUMNS if (prefix + name).lower() in lowered]
    if clashing:
        raise ConfigurationError(
            f"the DataFrame already has columns named {', '.join(clashing)}: pass a prefix for the"
            " added columns (prefix='rq_')"
        )
    if twice := sorted({name for name in lowered if lowered.count(name) > 1}):
        raise ConfigurationError(
            f"the DataFrame has several columns named {', '.join(twice)}: rename them first"
        )


def check_type(role: str, name: str, found: str, allowed: Sequence[str]) -> None:
    """Raise `ConfigurationError` unless the column's type is allowed."""
    if found not in allowed:
        raise ConfigurationError(
            f"the {role} column {name!r} has the type {found}; it must be"
            f" {', '.join(allowed[:-1])} or {allowed[-1]}: cast or encode it first"
        )


BODY_TYPES: Final = ("binary", "string", "array<binary>")
KEY_TYPES: Final = ("string", "binary", "tinyint", "smallint", "int", "bigint")


def settings_known() -> tuple[str, ...]:
    """Return the names of the client settings that a bulk call accepts."""
    return ("retry", "heartbeat", "message_size_max")


def connection(url: str, service: str | None, slots: int, settings: dict[str, Any]) -> Connection:
    """Build the connection settings; raise `ConfigurationError` for unknown ones."""
    if unknown := sorted(settings.keys() - set(settings_known())):
        raise ConfigurationError(
            f"unknown setting {', '.join(unknown)}; the settings are {', '.join(settings_known())}"
        )
    return Connection(url, service, slots, **settings)
