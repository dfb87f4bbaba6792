"""The parameters of a bulk call: checked on the driver, pickled, executed by tasks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from pyspark.errors import PySparkException
from pyspark.sql.types import DataType, StructType

from requite.client import AsyncClient, Client
from requite.client.call_arguments import TIMEOUT_S, check_timeout
from requite.core.liveness import HeartbeatPolicy
from requite.errors import ConfigurationError
from requite.framing import Limits
from requite.request import RetryPolicy
from requite.speaks.plans import ClientSettings
from requite.speaks.registry import carries, client_plan, read_endpoints

if TYPE_CHECKING:
    from requite.spark.typed.contract import Contract

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
TYPED_COLUMNS: Final = {**COLUMNS, "error_data": "string"}

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

    @property
    def address(self) -> str:
        """The service name that is called."""
        return self.service or read_endpoints(self.url).service

    def ask(self, service: str, timeout_s: float) -> bytes:
        """Call another service of the same peer, without a message, and return its reply."""
        with Client(
            self.url,
            retry=self.retry,
            heartbeat=self.heartbeat,
            message_size_max=self.message_size_max,
        ) as client:
            return client.call(b"", service=service, timeout=timeout_s).body

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

    def check_names(self) -> None:
        """Raise `ConfigurationError` unless messages name methods and carry negative replies."""
        carried = carries(read_endpoints(self.url), None)
        if not (carried.names and carried.refusals):
            raise ConfigurationError(
                "calls of typed services from Spark require service names and negative replies;"
                " use MDP 0.3 without a pool"
            )


@dataclass(frozen=True, slots=True)
class Plan:
    """The parameters of one bulk call.

    `body` and `key` are column numbers; `key` None: rows are identified by position. The first
    `kept` columns appear in the output. `scope` distinguishes positions in micro-batches of one
    job. With `give_up`, nothing more is sent once the service is down. `retry_on` lists the
    statuses after which a row is sent again. `rate` limits requests per second of a task; None: no
    limit. `report_to` is the folder for progress reports; None: no reports. `contract` is that with
    a method of a typed service; None: bodies and replies are bytes.
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
    contract: Contract | None = None

    @property
    def patience_s(self) -> float:
        """How long the client waits for a reply or for the broker's error."""
        assert self.timeout_s is not None
        return self.timeout_s / (1 - self.connection.hold_back)

    @property
    def names(self) -> list[str]:
        """The names of the added columns."""
        return [self.prefix + name for name in self.columns]

    @property
    def columns(self) -> dict[str, str]:
        """The added columns without the prefix, and their types."""
        return COLUMNS if self.contract is None else TYPED_COLUMNS


def make_plan(plan: Plan, body: DataType, returns: DataType | None = None) -> Plan:
    """Check a plan and return it, with its contract if the call is typed.

    `body` is the type of the body's column, `returns` that of the replies if it was given. Raises
    `ConfigurationError` for a plan that is invalid, and the errors of `read_contract`.
    """
    if plan.timeout_s is None:
        raise ConfigurationError(
            "bulk calls require a timeout: Spark may end a task at any time, and without a"
            " timeout its requests would never end"
        )
    check_timeout(plan.timeout_s)
    check_counts(window=plan.window)
    plan.connection.check(plan.idempotent)
    if is_typed(body, returns):
        from requite.spark.typed.contract import read_contract

        plan.connection.check_names()
        ask = partial(plan.connection.ask, timeout_s=plan.timeout_s)
        contract = read_contract(plan.connection.address, ask, body, returns)
        plan = replace(plan, contract=contract)
    check_statuses(plan.retry_on, () if plan.contract is None else plan.contract.errors)
    return plan


def is_typed(body: DataType, returns: object) -> bool:
    """Whether a call is one of a typed service: of a struct, or with a type for the replies."""
    return returns is not None or isinstance(body, StructType)


def check_counts(**counts: object) -> None:
    """Raise `ConfigurationError` for a count that is not an integer of at least 1."""
    for name, count in counts.items():
        if count is not None and not (isinstance(count, int) and count >= 1):
            raise ConfigurationError(f"{name} must be an integer of at least 1, not {count!r}")


def check_statuses(names: Iterable[str], declared: Iterable[str] = ()) -> None:
    """Raise `ConfigurationError` for a status that cannot be retried.

    `declared`: the names of the errors that the method declares.
    """
    allowed = (*RETRYABLE, *sorted(declared))
    if unknown := sorted(set(names) - set(allowed)):
        raise ConfigurationError(
            f"retry_on cannot contain {', '.join(unknown)}; it may contain {', '.join(allowed)}"
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


def check_clash(present: Sequence[str], prefix: str, *, typed: bool) -> None:
    """Raise `ConfigurationError` if an added column would have the name of a present one.

    Names are compared without regard to case, as Spark does.
    """
    lowered = [name.lower() for name in present]
    added = TYPED_COLUMNS if typed else COLUMNS
    clashing = [prefix + name for name in added if (prefix + name).lower() in lowered]
    if clashing:
        raise ConfigurationError(
            f"the DataFrame already has columns named {', '.join(clashing)}: pass a prefix for the"
            " added columns (prefix='rq_')"
        )
    if twice := sorted({name for name in lowered if lowered.count(name) > 1}):
        raise ConfigurationError(
            f"the DataFrame has several columns named {', '.join(twice)}: rename them first"
        )


def check_type(role: str, name: str, kind: DataType, allowed: Sequence[str]) -> None:
    """Raise `ConfigurationError` unless the column's type is allowed; a struct may be a body."""
    found = kind.simpleString()
    if found not in allowed and not (role == "body" and isinstance(kind, StructType)):
        raise ConfigurationError(
            f"the {role} column {name!r} has the type {found}; it must be"
            f" {', '.join(allowed[:-1])} or {allowed[-1]}: cast or encode it first"
        )


def type_given(returns: str | DataType | None) -> DataType | None:
    """Return the type that `returns` states in DDL: a struct of columns, or one type.

    Raises `ConfigurationError`.
    """
    if returns is None or isinstance(returns, DataType):
        return returns
    try:
        return DataType.fromDDL(returns)
    except (PySparkException, TypeError, AttributeError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ConfigurationError(f"returns={returns!r} is not a type in DDL: {reason}") from error


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
