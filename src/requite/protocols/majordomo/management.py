"""The broker's own services: 8/MMI, and more about its state as JSON.

| service | request body | reply body |
|---|---|---|
| `mmi.service` | a service name | `200` if it has a worker, `404` if not (8/MMI); else `403` |
| `mmi.list` | anything | `[{"service", "workers", "waiting", "queued", "in_progress", "paused"}]` |
| `mmi.stats` | a service name, or empty: all | `{"services": [...], "clients", "pending", ...}` |
| `mmi.workers` | a service name, or empty: all | `[{"service", "worker", "dialect", ...}]` |
| `mmi.census` | a service name, or empty: all | the numbers of metrics: `reading.py` |
| `mmi.under` | what names begin with | `[{"service", "workers": [...], "queued", ...}]` |
| `mmi.ping` | anything | `{"pong": true, "draining"}` |
| `mmi.pair` | anything | of one of a pair: `{"role", "state", "epoch", ...}`; else `501` |
| `mmi.describe` | a service name | of the service `NAME.describe`: its description |
| `mmi.whoami` | anything | of the client: `{"principal", "call", "serve", ...}` |
| any other `mmi.` name | | `501` (8/MMI) |

`mmi.describe` is no answer of the broker: it hands the request to the service `NAME.describe`, as a
client of MDP 0.3 could do itself, and with the same rights, limits and failures. For clients of MDP
0.1 and 0.2, to which replies would come under another name, it is unknown (`501`).

`403`: the client may not call the service. Names that are not valid UTF-8 are shown with
replacement characters. These requests are read-only; `operations.py` has those that change
something.

`mmi.under` is for programs that watch many related services, such as the manager of a pool. It is
called several times a second, so it returns only what they need: `queued`, `in_progress` and
`accepted` as in `mmi.stats`, and the names of the workers (in hex, as in journals) in order of
arrival.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Protocol

from requite.principal import Principal
from requite.protocols.majordomo.census import Census, traffic_of
from requite.protocols.majordomo.parties import Client, Party, Service, Worker
from requite.protocols.majordomo.permissions import ACTS, lacks_to_call
from requite.protocols.majordomo.reading import reading_of, to_json
from requite.protocols.majordomo.wire import ClientRequest
from requite.request import Status
from requite.value import Value

_REUSABLE: Final = (b"mmi.list", b"mmi.stats", b"mmi.workers", b"mmi.census")
_REUSE_ROWS_MIN: Final = 50
_REUSE_S_PER_ROW: Final = 50e-6  # five times what a row takes to be made
_REUSE_S_MAX: Final = 0.25
_ANSWERS_MAX: Final = 16
_MANAGERS: Final = b"/!"  # in the names of the managers of a pool

DESCRIBE: Final = b"mmi.describe"
"""The request for the description of the service that its body names."""

FORBIDDEN: Final = b"403"
"""The answer to a client of MDP 0.1 or 0.2 that has no right to the service of the broker, and of
`mmi.service` about a service that the client may not call."""


@dataclass(frozen=True, slots=True)
class ServiceState(Value):
    """Counts of one service: workers, requests, and outcomes of earlier requests."""

    service: str
    workers: int
    waiting: int
    queued: int
    in_progress: int
    paused: bool
    accepted: int
    replied: int
    failed: int
    expired: int
    cancelled: int
    redelivered: int
    refused: int


@dataclass(frozen=True, slots=True)
class WorkerState(Value):
    """One worker; `worker` is its address in hex, `instance` its name in journals, in hex,
    `principal` its owner. `holding` counts its requests."""

    service: str
    worker: str
    instance: str
    principal: str
    dialect: str
    capacity: int
    holding: int
    served: int
    draining: bool
    heartbeat_ms: int


@dataclass(frozen=True, slots=True)
class Snapshot(Value):
    """The tables of a broker. `unread`: clients that are not read from, because a limit is reached;
    `timers`: armed timers (I9)."""

    services: tuple[ServiceState, ...]
    workers: tuple[WorkerState, ...]
    clients: int
    unread: int
    newcomers: int
    pending: int
    timers: int
    draining: bool


def describing(command: ClientRequest) -> ClientRequest:
    """Return the request to a service that `mmi.describe` stands for ([mmi-describe])."""
    return replace(command, service=command.body[0] + b".describe", body=[b""])


class BrokerView(Protocol):
    """The part of a broker that this module reads."""

    draining: bool
    standing: Callable[[], Mapping[str, Any]] | None
    parties: dict[Any, Party]

    @property
    def services(self) -> Mapping[bytes, Service]: ...
    def snapshot(self) -> Snapshot: ...
    def census(self) -> Census: ...


def snapshot(
    services: Iterable[Service], parties: Iterable[Party], unread: int, timers: int, draining: bool
) -> Snapshot:
    """Return a snapshot of the broker's tables."""
    parties = list(parties)
    clients = [party for party in parties if isinstance(party, Client)]
    workers = [party for party in parties if isinstance(party, Worker)]
    return Snapshot(
        services=tuple(_service_state(service) for service in services),
        workers=tuple(_worker_state(worker) for worker in workers),
        clients=len(clients),
        unread=unread,
        newcomers=len(parties) - len(clients) - len(workers),
        pending=sum(len(client.pending) for client in clients),
        timers=timers,
        draining=draining,
    )


class Management:
    """Answers management requests; every answer is one frame.

    In a large broker an answer takes milliseconds to make: some 10 µs for each service and peer. So
    it is reused for a time that grows with their number, which bounds the share of such requests in
    the processor's time. `mmi.under` is made anew each time: managers of pools rely on it.
    """

    def __init__(self, broker: BrokerView) -> None:
        self._broker = broker
        self._answers: dict[tuple[bytes, bytes], tuple[float, bytes]] = {}

    def answer(self, client: Client, name: bytes, body: Sequence[bytes], now: float) -> bytes:
        """Answer a request. `501`: there is no such service (8/MMI)."""
        if name == b"mmi.whoami":
            return _whoami(client.principal)
        handler = _HANDLERS.get(name)
        if handler is None:
            return b"501"
        if name == b"mmi.service" and _may_not_ask(client, body[0]):
            return FORBIDDEN
        subject, rows = body[0], len(self._broker.services) + len(self._broker.parties)
        if rows < _REUSE_ROWS_MIN or name not in _REUSABLE:
            self._answers.clear()
            return handler(subject, self._broker, now)
        until, made = self._answers.get((name, subject), (now, b""))
        if now >= until:
            made = handler(subject, self._broker, now)
            if len(self._answers) >= _ANSWERS_MAX:
                self._answers.clear()
            self._answers[name, subject] = now + min(_REUSE_S_MAX, rows * _REUSE_S_PER_ROW), made
        return made

    @staticmethod
    def is_costly(name: bytes) -> bool:
        """Whether an answer takes longer in a large broker."""
        return name in _REUSABLE or name == b"mmi.under" or name in ACTS


def _may_not_ask(client: Client, service: bytes) -> bool:
    """Whether a client may not know if a service has workers ([mmi-service-denied]). Whether a pool
    has managers is no secret: callers of its groups have to know."""
    return _MANAGERS not in service and bool(lacks_to_call(client.principal, service, []))


def _is_registered(subject: bytes, broker: BrokerView, _now: float) -> bytes:
    service = broker.services.get(subject)
    return b"404" if service is None or service.is_bare else b"200"


def _list(_subject: bytes, broker: BrokerView, _now: float) -> bytes:
    brief = ("service", "workers", "waiting", "queued", "in_progress", "paused")
    states = map(_service_state, broker.services.values())
    return _json([{name: getattr(state, name) for name in brief} for state in states])


def _stats(subject: bytes, broker: BrokerView, _now: float) -> bytes:
    whole = asdict(broker.snapshot())
    del whole["workers"]
    if broker.standing is not None:
        whole["pair"] = broker.standing()
    return _json(whole | {"services": _about(subject, whole["services"])})


def _workers(subject: bytes, broker: BrokerView, _now: float) -> bytes:
    return _json(_about(subject, [asdict(worker) for worker in broker.snapshot().workers]))


def _under(subject: bytes, broker: BrokerView, _now: float) -> bytes:
    return _json(
        [
            {
                "service": _text(name),
                "workers": [worker.name.hex() for worker in service.workers],
                "queued": service.queue.length,
                "in_progress": service.in_progress,
                "accepted": service.counters.accepted,
            }
            for name, service in broker.services.items()
            if name.startswith(subject)
        ]
    )


def _census(subject: bytes, broker: BrokerView, now: float) -> bytes:
    census = broker.census()
    seen = [traffic_of(each) for each in census.services if not subject or each.name == subject]
    pair = None if broker.standing is None else broker.standing()
    return to_json(reading_of(census, seen, now, pair))


def _ping(_subject: bytes, broker: BrokerView, _now: float) -> bytes:
    return _json({"pong": True, "draining": broker.draining})


def _whoami(principal: Principal) -> bytes:
    rights = principal.rights
    return _json({"principal": principal.name, "rights": rights and asdict(rights)})


def _pair(_subject: bytes, broker: BrokerView, _now: float) -> bytes:
    return b"501" if broker.standing is None else _json(broker.standing())


_HANDLERS: dict[bytes, Callable[[bytes, BrokerView, float], bytes]] = {
    b"mmi.service": _is_registered,
    b"mmi.list": _list,
    b"mmi.stats": _stats,
    b"mmi.workers": _workers,
    b"mmi.census": _census,
    b"mmi.under": _under,
    b"mmi.ping": _ping,
    b"mmi.pair": _pair,
}


def _about(subject: bytes, rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    wanted = _text(subject)
    return [row for row in rows if not wanted or row["service"] == wanted]


def _service_state(service: Service) -> ServiceState:
    counters = service.counters
    return ServiceState(
        service=_text(service.name),
        workers=len(service.workers),
        waiting=len(service.waiting),
        queued=service.queue.length,
        in_progress=service.in_progress,
        paused=service.is_paused,
        accepted=counters.accepted,
        replied=counters.took.count,
        failed=counters.failed,
        expired=counters.ended[Status.EXPIRED],
        cancelled=counters.ended[Status.CANCELLED],
        redelivered=counters.redelivered,
        refused=counters.refused,
    )


def _worker_state(worker: Worker) -> WorkerState:
    return WorkerState(
        service=_text(worker.service.name),
        worker=worker.address.hex(),
        instance=worker.name.hex(),
        principal=worker.principal.name,
        dialect=worker.dialect.version,
        capacity=worker.capacity,
        holding=len(worker.holds),
        served=worker.served,
        draining=worker.draining,
        heartbeat_ms=round(worker.liveness.interval_s * 1000),
    )


def _text(name: bytes) -> str:
    return name.decode(errors="replace")


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
