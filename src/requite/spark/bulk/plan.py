"""What a bulk call asks of its tasks: checked on the driver, pickled, carried out on executors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Final
from uuid import UUID

from requite.client import AsyncClient
from requite.client.asking import TIMEOUT_S, check_timeout
from requite.core.liveness import HeartbeatPolicy
from requite.errors import ConfigurationError
from requite.framing import Limits
from requite.request import RetryPolicy
from requite.speaks.plans import ClientSettings
from requite.speaks.registry import client_plan, read_endpoints

WINDOW: Final = 256  # requests that one task has out at a time; more are hardly faster (bench)
COLUMNS: Final = {
    "reply": "binary",
    "status": "string",
    "attempts": "int",
    "elapsed_ms": "double",
    "may_have_executed": "boolean",
    "error": "string",
    "idempotency_key": "string",
}
STATUS: Final = list(COLUMNS).index("status")  # its place among them

_KEY: Final = bytes(16)  # as long as every request's

# Of the time that a row may take, this share is the broker's to say how the request ended: whether
# a worker ever had it is known there alone. The timeout is what is left.
_HOLD_BACK: Final = 1 / 11

# What another request may change. A poisoned one would cost more workers, a cancelled one nobody
# waits for.
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
    """What decides whether two tasks of a process can share a client."""

    url: str
    service: str | None = None
    slots: int = WINDOW
    retry: RetryPolicy = RetryPolicy()  # noqa: RUF009 - frozen
    heartbeat: HeartbeatPolicy | float | None = None
    message_size_max: int = Limits().message_size_bytes_max

    @property
    def hold_back(self) -> float:
        """The share of each call's time that is kept back from the broker."""
        return _HOLD_BACK if read_endpoints(self.url).protocol == "mdp" else 0.0

    def open(self) -> AsyncClient:
        """Make a client; it connects when it is first used."""
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
        """Raise `ConfigurationError` for what cannot work, before any task is started."""
        endpoints = read_endpoints(self.url)
        settings = ClientSettings(self.retry, self.slots, self.heartbeat, None, 1, 1)
        traits = client_plan(endpoints, settings).traits
        traits.check_service(self.service or endpoints.service)
        traits.check(key=_KEY, partials=False, idempotent=idempotent)
        self.open()


@dataclass(frozen=True, slots=True)
class Plan:
    """One bulk call. `body` and `key` are the numbers of columns, `key` None: rows are identified
    by their position. The first `kept` columns are given on; `scope` tells apart positions of the
    same job (its micro-batches). With `give_up`, nothing more is sent once the service is down.

    `retry_on` names the statuses after which a row is sent again. `rate` is what a task may send
    per second, None: as fast as it can. Tasks report to the folder `report_to`, None: to nobody."""

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
        """How long the client waits for a reply, or for the broker's word that there is none."""
        assert self.timeout_s is not None
        return self.timeout_s / (1 - self.connection.hold_back)

    @property
    def names(self) -> list[str]:
        """The names of the columns that are added."""
        return [self.prefix + name for name in COLUMNS]


def make_plan(plan: Plan) -> Plan:
    """Return the plan if it can be carried out; raise `ConfigurationError` otherwise."""
    if plan.timeout_s is None:
        raise ConfigurationError(
            "bulk calls need a timeout: Spark may end a task at any time, and nobody else would"
            " give its requests up"
        )
    check_timeout(plan.timeout_s)
    check_counts(window=plan.window)
    check_statuses(plan.retry_on)
    plan.connection.check(plan.idempotent)
    return plan


def check_counts(**counts: object) -> None:
    """Raise `ConfigurationError` for a parameter that is no whole number of at least 1."""
    for name, count in counts.items():
        if count is not None and not (isinstance(count, int) and count >= 1):
            raise ConfigurationError(f"{name} must be at least 1, a whole number, not {count!r}")


def check_statuses(names: Iterable[str]) -> None:
    """Raise `ConfigurationError` for a status after which another request makes no sense."""
    if unknown := sorted(set(names) - set(RETRYABLE)):
        raise ConfigurationError(
            f"a row cannot be sent again after {', '.join(unknown)}; retry_on takes"
            f" {', '.join(RETRYABLE)}"
        )


def share_of_rate(rate: float | None, task_slots: int) -> float | None:
    """Return what each task may send per second. Raises `ConfigurationError`."""
    if rate is None:
        return None
    if not 0 < rate < inf:
        raise ConfigurationError(f"rate is a positive number of requests per second, not {rate!r}")
    return rate / task_slots


def share(in_flight_max: int | None, task_slots: int, window: int) -> int:
    """Return how many requests each task may have out so that all together keep to the cap.

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
    """Raise `ConfigurationError` where added columns would have the names of present ones.

    Spark resolves names without regard to case, so this does, too.
    """
    lowered = [name.lower() for name in present]
    clashing = [prefix + name for name in COLUMNS if (prefix + name).lower() in lowered]
    if clashing:
        raise ConfigurationError(
            f"the DataFrame has columns named {', '.join(clashing)} already: choose a prefix for"
            " those of the replies (prefix='rq_')"
        )
    if twice := sorted({name for name in lowered if lowered.count(name) > 1}):
        raise ConfigurationError(
            f"the DataFrame has several columns named {', '.join(twice)}: rename them first"
        )


def check_type(role: str, name: str, found: str, allowed: Sequence[str]) -> None:
    """Raise `ConfigurationError` unless the column is of a type that can be sent or named by."""
    if found not in allowed:
        raise ConfigurationError(
            f"the column of the {role}, {name!r}, is of the type {found}; it has to be"
            f" {', '.join(allowed[:-1])} or {allowed[-1]}: cast or encode it first"
        )


BODY_TYPES: Final = ("binary", "string", "array<binary>")
KEY_TYPES: Final = ("string", "binary", "tinyint", "smallint", "int", "bigint")


def settings_known() -> tuple[str, ...]:
    """Return the settings of a client that a bulk call passes on."""
    return ("retry", "heartbeat", "message_size_max")


def connection(url: str, service: str | None, slots: int, settings: dict[str, Any]) -> Connection:
    """Put the settings of a client together; raise `ConfigurationError` for unknown ones."""
    if unknown := sorted(settings.keys() - set(settings_known())):
        raise ConfigurationError(
            f"there is no setting {', '.join(unknown)}; there are {', '.join(settings_known())}"
        )
    return Connection(url, service, slots, **settings)
