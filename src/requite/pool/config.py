"""What may be set for a pool: `pool.toml`, overridden by the environment, overridden by flags.

A setting has a section and a name. In the file it stands under `[section]`; in the environment it
is `REQUITE_POOL__SECTION__NAME`; flags are given as `section.name`. Times are seconds. What is not
known is an error, which names the place where it stands.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from math import isfinite
from typing import Annotated, Any, Final, TypeVar, get_type_hints

from msgspec import Meta, ValidationError, convert

from requite.errors import ConfigurationError

PREFIX: Final = "REQUITE_POOL__"

Section = TypeVar("Section")
Name = Annotated[str, Meta(min_length=1)]
Positive = Annotated[float, Meta(gt=0)]
NotNegative = Annotated[float, Meta(ge=0)]
AtLeastOne = Annotated[int, Meta(ge=1)]


def _check(holds: bool, sentence: str) -> None:
    if not holds:
        raise ConfigurationError(sentence)


@dataclass(frozen=True, slots=True)
class PoolSection:
    """`[pool]`. `name`: begins the names of its exchanges and queues. `instance`: distinguishes
    managers that share a container engine or cluster; what they make is labelled with it. `version`
    of the workers: groups that run another one are replaced. `stop_groups_on_exit`: a manager that
    ends stops its groups."""

    name: Name
    instance: Name = "default"
    version: str = ""
    stop_groups_on_exit: bool = True


@dataclass(frozen=True, slots=True)
class RabbitSection:
    """`[rabbitmq]`. `management_url`: of its management API; `publish_timeout`: how long a confirm
    or another answer of RabbitMQ may take; `management_timeout`: the same for the API."""

    url: str = "amqp://guest:guest@localhost/"
    management_url: str = "http://guest:guest@localhost:15672"
    publish_timeout_s: Positive = 10.0
    management_timeout_s: Positive = 10.0


@dataclass(frozen=True, slots=True)
class BrokerSection:
    """`[broker]`. `url`: of a broker of MDP that has the pool in place of RabbitMQ (empty: RabbitMQ
    has it). `interval`: how often that is asked for requests that wait; `timeout`: how long its
    answer may take. `settle`: how long workers have to come back to a broker that was away, before
    a group is taken for one that nobody needs."""

    url: str = ""
    interval_s: Positive = 0.25
    timeout_s: Positive = 5.0
    settle_s: NotNegative = 10.0


@dataclass(frozen=True, slots=True)
class Lifetime:
    """`[lifetime]`. A group that got no request for `unbind_delay` is unbound, and `stop_delay`
    later stopped. Of the reports of one group in `extra_lifetime` only the first counts, for so
    much longer."""

    unbind_delay_s: Positive = 300.0
    stop_delay_s: Positive = 60.0
    extra_lifetime_s: NotNegative = 10.0


@dataclass(frozen=True, slots=True)
class Loops:
    """`[loops]`. Queues and groups are compared with what is expected every `interval`, beside when
    it changes. After a failure follows a pause of `backoff`, then of twice that, up to
    `backoff_max`. At most `replace_max` groups are replaced at a time. A queue is deleted once it
    was seen to be empty twice, `settle` apart: what workers hold the management API knows so late
    (RabbitMQ's `collect_statistics_interval`, 5 s unless it is set)."""

    interval_s: Positive = 5.0
    backoff_s: Positive = 0.5
    backoff_max_s: float = 30.0
    replace_max: AtLeastOne = 1
    settle_s: NotNegative = 6.0

    def __post_init__(self) -> None:
        _check(self.backoff_s <= self.backoff_max_s, "loops.backoff exceeds loops.backoff_max")


@dataclass(frozen=True, slots=True)
class Limits:
    """`[limits]`. `message_ttl`: how long a request waits in its queue; `delivery_limit`: how often
    it is given to a worker again after the first time; `queue_length`, `queue_bytes`: of one
    request queue (0: no limit); beyond that the oldest requests are answered with `maxlen`.
    `orphans`: how many the manager holds at a time; beyond that those that have waited for
    `orphan_hold` go to the end of their queue."""

    message_ttl_s: Annotated[float, Meta(ge=0.001)] = 600.0
    delivery_limit: AtLeastOne = 5
    queue_length: Annotated[int, Meta(ge=0)] = 100_000
    orphans: Annotated[int, Meta(ge=1, le=65535)] = 1000
    orphan_hold_s: Positive = 1.0


@dataclass(frozen=True, slots=True)
class HttpSection:
    """`[http]`. Where the manager tells how it is and takes commands, from whoever can connect;
    port 0 takes a free one."""

    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535)] = 8670


@dataclass(frozen=True, slots=True)
class WorkersSection:
    """`[workers]`. What workers are told: `amqp_url`, where they reach RabbitMQ, or `broker_url`,
    where they reach the broker (empty: where the manager does), and how many requests each takes at
    a time."""

    amqp_url: str = ""
    broker_url: str = ""
    prefetch: Annotated[int, Meta(ge=1, le=65535)] = 1


@dataclass(frozen=True, slots=True)
class DriverSection:
    """`[driver]`. `kind`: which driver; all other settings are its own, and `read_section` reads
    them. `timeout`: how long a start, a stop or a listing may take."""

    kind: str = "subprocess"
    timeout_s: float = 60.0
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PoolConfig:
    """Everything that may be set."""

    pool: PoolSection
    rabbitmq: RabbitSection = field(default_factory=RabbitSection)
    broker: BrokerSection = field(default_factory=BrokerSection)
    lifetime: Lifetime = field(default_factory=Lifetime)
    loops: Loops = field(default_factory=Loops)
    limits: Limits = field(default_factory=Limits)
    workers: WorkersSection = field(default_factory=WorkersSection)
    driver: DriverSection = field(default_factory=DriverSection)
    http: HttpSection = field(default_factory=HttpSection)

    def __post_init__(self) -> None:
        # Programs that embed a manager make sections themselves.
        for section, kind in _hints(PoolConfig).items():
            for name, hint in _hints(kind).items():
                value = getattr(getattr(self, section), name)
                _fit(value, hint, f"{section}.{name.removesuffix('_s')}")


def read_config(
    text: str,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
    where: str = "pool.toml",
) -> PoolConfig:
    """Read the settings of a pool: `text` of the file, `environ` and `flags` (None: not given).

    Raises `ConfigurationError`, which names the setting and where it stands.
    """
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{where}: {error}") from None
    for name, table in tables.items():
        _check(isinstance(table, dict), f"{where}: {name} stands outside of a section")
    overrides = [*_from_environ(environ or {}), *_from_flags(flags or {})]
    places = {name: f"{where}, [{name}]" for name in tables}
    for place, section, name, value in overrides:
        tables.setdefault(section, {})[name] = value
        places[section] = f"{places[section]} and {place}" if section in places else place
    return _assemble(tables, places, where)


def _from_environ(environ: Mapping[str, str]) -> Iterator[tuple[str, str, str, Any]]:
    for variable, value in sorted(environ.items()):
        if variable.startswith(PREFIX):
            section, _, name = variable.removeprefix(PREFIX).lower().partition("__")
            _check(bool(section and name), f"{variable}: it is {PREFIX}SECTION__NAME")
            yield variable, section, name, value


def _from_flags(flags: Mapping[str, Any]) -> Iterator[tuple[str, str, str, Any]]:
    for flag, value in flags.items():
        if value is not None:
            section, _, name = flag.partition(".")
            yield f"the flag for {flag}", section, name, value


def _assemble(tables: dict[str, Any], places: Mapping[str, str], where: str) -> PoolConfig:
    kinds = _hints(PoolConfig)
    for section in tables:
        known = ", ".join(kinds)
        _check(section in kinds, f"{places[section]}: no such section; there are {known}")
    _check("pool" in tables, f"{where}: there is no [pool] with the name of the pool")
    driver = tables.pop("driver", {})
    sections = {
        name: read_section(kinds[name], table, places[name]) for name, table in tables.items()
    }
    return PoolConfig(driver=_read_driver(driver, places.get("driver", where)), **sections)


def _read_driver(table: Mapping[str, Any], where: str) -> DriverSection:
    own = {name: value for name, value in table.items() if name in ("kind", "timeout")}
    read = read_section(DriverSection, own, where)
    settings = {name: value for name, value in table.items() if name not in own}
    return DriverSection(read.kind, read.timeout_s, settings)


def read_section(kind: type[Section], table: Mapping[str, Any], where: str) -> Section:
    """Read a table into a dataclass; a field `x_s` is the setting `x`, in seconds.

    Fields are texts, numbers, truths, or lists of texts; texts are converted, as they may come from
    the environment, where a list is separated by blanks. Raises `ConfigurationError`.
    """
    hints = _hints(kind)  # type: ignore[arg-type]  # mypy: a class of any kind is not Hashable
    known = {each.name.removesuffix("_s"): each for each in fields(kind)}  # type: ignore[arg-type]
    values = {}
    for name, value in table.items():
        names = f"there are {', '.join(known)}" if known else "it has none"
        _check(name in known, f"{where}: no such setting {name!r}; {names}")
        values[known[name].name] = _read(value, hints[known[name].name], f"{where}: {name}")
    for name, each in known.items():
        optional = each.default is not MISSING or each.default_factory is not MISSING
        _check(optional or each.name in values, f"{where}: {name} is missing")
    try:
        return kind(**values)
    except ConfigurationError as error:
        raise ConfigurationError(f"{where}: {error}") from None


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


_TRUTHS: Final = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


def _read(value: Any, kind: Any, where: str) -> Any:
    """Read a value of the file, or a text of the environment, into the type of its field."""
    if isinstance(value, str) and kind is bool:
        value = _TRUTHS.get(value.lower(), value)
    elif isinstance(value, str) and kind == tuple[str, ...]:
        value = value.split()
    return _fit(value, kind, where, strict=not isinstance(value, str))


def _fit(value: Any, kind: Any, where: str, *, strict: bool = True) -> Any:
    """Return a value as `kind`, within its bounds; only if `strict` is False, texts are numbers."""
    try:
        fitting = convert(value, kind, strict=strict)
    except ValidationError as error:
        reason = str(error).replace("Expected", "expected", 1)
        raise ConfigurationError(f"{where} is {value!r}; {reason}") from None
    is_number = not isinstance(fitting, float) or isfinite(fitting)
    _check(is_number, f"{where} is {value!r}; expected a finite `float`")
    return fitting
