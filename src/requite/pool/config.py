"""Settings of a pool: `pool.toml`, overridden by the environment, overridden by flags.

A setting has a section and a name: `name` under `[section]` in the file,
`REQUITE_POOL__SECTION__NAME` in the environment, `section.name` as a flag. Times are in seconds.
An unknown setting is an error that names its source.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields
from math import isfinite
from typing import Any, Final, TypeVar, get_type_hints

from requite.errors import ConfigurationError
from requite.framing.web_hosts import canonical, is_loopback

PREFIX: Final = "REQUITE_POOL__"
UNIX: Final = "unix:"
"""The scheme of `http.bind`."""

Section = TypeVar("Section")


def _check(holds: bool, sentence: str) -> None:
    if not holds:
        raise ConfigurationError(sentence)


@dataclass(frozen=True, slots=True)
class PoolSection:
    """`[pool]`.

    - `name`: prefix of the pool's exchanges and queues.
    - `instance`: labels workers, to tell apart managers that share a container engine or cluster.
    - `version` of the workers: groups that run another version are replaced.
    - `stop_groups_on_exit`: the manager stops its groups when it exits.
    """

    name: str
    instance: str = "default"
    version: str = ""
    stop_groups_on_exit: bool = True

    def __post_init__(self) -> None:
        _check(bool(self.name), "pool.name is empty")
        _check(bool(self.instance), "pool.instance is empty")


@dataclass(frozen=True, slots=True)
class RabbitSection:
    """`[rabbitmq]`.

    - `management_url`: URL of the management API.
    - `publish_timeout`: timeout of publisher confirms and other AMQP replies.
    - `management_timeout`: timeout of requests to the management API.
    """

    url: str = field(default="amqp://guest:guest@localhost/", repr=False)
    management_url: str = field(default="http://guest:guest@localhost:15672", repr=False)
    publish_timeout_s: float = 10.0
    management_timeout_s: float = 10.0

    def __post_init__(self) -> None:
        _check(self.publish_timeout_s > 0, "rabbitmq.publish_timeout is not positive")
        _check(self.management_timeout_s > 0, "rabbitmq.management_timeout is not positive")


@dataclass(frozen=True, slots=True)
class BrokerSection:
    """`[broker]`.

    - `url`: a broker of MDP that carries the pool in place of RabbitMQ; empty: RabbitMQ does.
    - `interval`: how often the manager polls the broker for waiting requests.
    - `timeout`: timeout of a poll.
    - `settle`: how long workers may take to reconnect to the broker before their group can be
      stopped as unused.
    """

    url: str = field(default="", repr=False)
    interval_s: float = 0.25
    timeout_s: float = 5.0
    settle_s: float = 10.0

    def __post_init__(self) -> None:
        _check(self.interval_s > 0, "broker.interval is not positive")
        _check(self.timeout_s > 0, "broker.timeout is not positive")
        _check(self.settle_s >= 0, "broker.settle is negative")


@dataclass(frozen=True, slots=True)
class Lifetime:
    """`[lifetime]`.

    A group without requests for `unbind_delay` is unbound, and stopped `stop_delay` later. Only the
    first activity report of a group in each `extra_lifetime` counts; it extends the group's
    lifetime by as much.
    """

    unbind_delay_s: float = 300.0
    stop_delay_s: float = 60.0
    extra_lifetime_s: float = 10.0

    def __post_init__(self) -> None:
        _check(self.unbind_delay_s > 0, "lifetime.unbind_delay is not positive")
        _check(self.stop_delay_s > 0, "lifetime.stop_delay is not positive")
        _check(self.extra_lifetime_s >= 0, "lifetime.extra_lifetime is negative")


@dataclass(frozen=True, slots=True)
class Loops:
    """`[loops]`.

    - `interval`: how often queues and groups are compared with the target state, in addition to
      each change of it.
    - `backoff`, `backoff_max`: the first pause after a failure, and the longest; each pause is
      twice the previous one.
    - `replace_max`: how many groups are replaced at a time.
    - `settle`: a queue is deleted after two inspections, `settle` apart, found it empty. The
      management API reports unacknowledged messages with that delay (RabbitMQ's
      `collect_statistics_interval`, 5 s by default).
    """

    interval_s: float = 5.0
    backoff_s: float = 0.5
    backoff_max_s: float = 30.0
    replace_max: int = 1
    settle_s: float = 6.0

    def __post_init__(self) -> None:
        _check(self.interval_s > 0, "loops.interval is not positive")
        _check(0 < self.backoff_s <= self.backoff_max_s, "loops.backoff exceeds loops.backoff_max")
        _check(self.replace_max >= 1, "loops.replace_max is less than 1")
        _check(self.settle_s >= 0, "loops.settle is negative")


@dataclass(frozen=True, slots=True)
class Limits:
    """`[limits]`.

    - `message_ttl`: how long a request waits in its queue.
    - `delivery_limit`: how often a request is redelivered.
    - `queue_length`: of one request queue (0: no limit); when it is full, the oldest requests are
      answered with `maxlen`.
    - `orphans`: how many the manager holds at a time; at that limit, orphans that have waited for
      `orphan_hold` go to the end of their queue.
    - `groups`: of the pool; requests for further keys wait until a group is stopped.
    """

    message_ttl_s: float = 600.0
    delivery_limit: int = 5
    queue_length: int = 100_000
    orphans: int = 1000
    orphan_hold_s: float = 1.0
    groups: int = 1000

    def __post_init__(self) -> None:
        _check(self.message_ttl_s >= 0.001, "limits.message_ttl is less than a millisecond")
        _check(self.delivery_limit >= 1, "limits.delivery_limit is less than 1")
        _check(self.queue_length >= 0, "limits.queue_length is negative")
        _check(1 <= self.orphans <= 65535, "limits.orphans is not between 1 and 65535")
        _check(self.orphan_hold_s > 0, "limits.orphan_hold is not positive")
        _check(self.groups >= 1, "limits.groups is less than 1")


@dataclass(frozen=True, slots=True)
class HttpSection:
    """`[http]`.

    - `host`, `port`: address of the manager's HTTP endpoints; port 0 picks a free port.
    - `bind`: `unix:/PATH`, a Unix socket for the manager's own user, instead of host and port.
    - `hosts`: further names by which clients reach the endpoints, as in the `Host` field.
    - `certificate`, `key`: files for TLS, in PEM; without `key`, the certificate's file has it.
    - `ca`: only clients with a certificate of this authority may connect.
    - `token_file`: file with the token that changes require; necessary without `ca`, unless clients
      must be on this machine.
    - `insecure`: serve other machines without TLS; then the network can read the token.
    - `enabled = false`: the manager has no endpoints; `requite pool status` and the like cannot
      reach it.
    """

    host: str = "127.0.0.1"
    port: int = 8670
    bind: str = ""
    hosts: tuple[str, ...] = ()
    certificate: str = ""
    key: str = ""
    ca: str = ""
    token_file: str = ""
    insecure: bool = False
    enabled: bool = True

    def __post_init__(self) -> None:
        _check(0 <= self.port <= 65535, "http.port is not between 0 and 65535")
        is_path = self.bind.startswith(f"{UNIX}/")
        _check(not self.bind or is_path, f"http.bind is {self.bind!r}; it must be unix:/PATH")
        for each in self.hosts:
            _check(
                canonical(each) is not None, f"http.hosts: {each!r} is not a host without a port"
            )
        has_tls = bool(self.certificate)
        _check(has_tls or not self.key, "http.key requires http.certificate: set both")
        _check(has_tls or not self.ca, "http.ca requires http.certificate: set both")
        _check(
            not (has_tls and self.bind),
            "http.certificate has no effect at http.bind, a Unix socket: remove one of them",
        )
        if self.enabled and not (self.bind or is_loopback(canonical(self.host) or "")):
            self._check_exposure()

    def _check_exposure(self) -> None:
        place = f"http.host {self.host!r} is not a loopback address"
        _check(
            bool(self.token_file or self.ca),
            f"{place}, so other machines could control the pool: set http.token_file, or http.ca to"
            " accept only clients with a certificate",
        )
        _check(
            bool(self.certificate) or self.insecure,
            f"{place}, so the network could read the token and change requests: set"
            " http.certificate (`requite keys new` makes one); http.insecure = true accepts the"
            " risk",
        )


@dataclass(frozen=True, slots=True)
class WorkersSection:
    """`[workers]`.

    - `amqp_url`, `broker_url`: where workers connect to RabbitMQ or to the broker; empty: the
      manager's own URL.
    - `prefetch`: how many requests a worker holds at a time.
    """

    amqp_url: str = field(default="", repr=False)
    broker_url: str = field(default="", repr=False)
    prefetch: int = 1

    def __post_init__(self) -> None:
        _check(1 <= self.prefetch <= 65535, "workers.prefetch is not between 1 and 65535")


@dataclass(frozen=True, slots=True)
class DriverSection:
    """`[driver]`.

    - `kind`: which driver; its own settings are read by `read_section`.
    - `timeout`: timeout of a start, a stop or a listing.
    """

    kind: str = "subprocess"
    timeout_s: float = 60.0
    settings: Mapping[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class PoolConfig:
    """All settings of a pool. URLs and the settings of drivers may have passwords: no `repr` shows
    them."""

    pool: PoolSection
    rabbitmq: RabbitSection = field(default_factory=RabbitSection)
    broker: BrokerSection = field(default_factory=BrokerSection)
    lifetime: Lifetime = field(default_factory=Lifetime)
    loops: Loops = field(default_factory=Loops)
    limits: Limits = field(default_factory=Limits)
    workers: WorkersSection = field(default_factory=WorkersSection)
    driver: DriverSection = field(default_factory=DriverSection)
    http: HttpSection = field(default_factory=HttpSection)


def read_config(
    text: str,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
    where: str = "pool.toml",
) -> PoolConfig:
    """Read the settings of a pool from the file's `text`, `environ` and `flags` (None: not given).

    Raises `ConfigurationError`, which names the setting and its source.
    """
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{where}: {error}") from None
    for name, table in tables.items():
        _check(isinstance(table, dict), f"{where}: {name} is outside of a section")
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
            _check(
                bool(section and name),
                f"{variable}: the name must have the form {PREFIX}SECTION__NAME",
            )
            yield variable, section, name, value


def _from_flags(flags: Mapping[str, Any]) -> Iterator[tuple[str, str, str, Any]]:
    for flag, value in flags.items():
        if value is not None:
            section, _, name = flag.partition(".")
            yield f"the flag for {flag}", section, name, value


def _assemble(tables: dict[str, Any], places: Mapping[str, str], where: str) -> PoolConfig:
    kinds = get_type_hints(PoolConfig)
    for section in tables:
        known = ", ".join(kinds)
        _check(section in kinds, f"{places[section]}: unknown section; the sections are {known}")
    _check("pool" in tables, f"{where}: the section [pool] with the name of the pool is missing")
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

    Fields are strings, numbers, booleans, or lists of strings. Strings are converted, since they
    may come from the environment, where blanks separate the items of a list. Raises
    `ConfigurationError`.
    """
    hints = get_type_hints(kind)
    known = {each.name.removesuffix("_s"): each for each in fields(kind)}  # type: ignore[arg-type]
    values = {}
    for name, value in table.items():
        names = f"the settings are {', '.join(known)}" if known else "the section has no settings"
        _check(name in known, f"{where}: unknown setting {name!r}; {names}")
        values[known[name].name] = _convert(value, hints[known[name].name], f"{where}: {name}")
    for name, each in known.items():
        optional = each.default is not MISSING or each.default_factory is not MISSING
        _check(optional or each.name in values, f"{where}: {name} is missing")
    try:
        return kind(**values)
    except ConfigurationError as error:
        raise ConfigurationError(f"{where}: {error}") from None


_TRUTHS: Final = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


def _convert(value: Any, kind: Any, where: str) -> Any:
    """Convert a value of the file or the environment to the type of its field."""
    if kind is bool and isinstance(value, str):
        value = _TRUTHS.get(value.lower(), value)
    if kind in (int, float) and isinstance(value, str):
        value = _number(value, kind)
    if kind == tuple[str, ...]:
        return _texts(value, where)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    fits = type(value) is kind and (kind is not float or isfinite(value))
    _check(fits, f"{where} is {value!r}; it must be {_NAMES.get(kind, kind)}")
    return value


_NAMES: Final[dict[Any, str]] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
}


def _number(text: str, kind: Any) -> Any:
    try:
        return kind(text)
    except ValueError:
        return text


def _texts(value: Any, where: str) -> tuple[str, ...]:
    if isinstance(value, str):
        return tuple(value.split())
    _check(
        isinstance(value, list | tuple) and all(isinstance(each, str) for each in value),
        f"{where} is {value!r}; it must be a list of strings",
    )
    return tuple(value)
