"""The metrics of a broker, of its Titanic and of its pair."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from math import inf
from typing import Final, Protocol

from requite.metrics import catalogue as metrics
from requite.metrics.families import Family, singles
from requite.principal import VERBS
from requite.protocols.binarystar.view import PairView
from requite.protocols.majordomo import census as at
from requite.protocols.majordomo.census import Census, Traffic
from requite.protocols.titanic.core import TitanicSnapshot
from requite.request import Status

_STATUSES: Final = tuple((status, status.name.lower()) for status in Status)
# `increase()` does not see the first event of a series that begins with it: statuses that alerts
# name, and all verbs, are there from the start.
_ENDED_FROM_START: Final = {Status.OK, Status.FAILED, Status.OVERLOADED, Status.POISONED}
_REFUSED_FROM_START: Final = {Status.OVERLOADED, Status.DENIED}
_VERBS: Final = (*VERBS, "connect", "call id", "quota")
_NS: Final = 1e9
_PER_TURN: Final = 10  # services in one turn of the loop, in 1.2 ms (CPython 3.11)


class StoreFigures(Protocol):
    """The sizes of a Titanic's store, and of what is still needed of it, in bytes."""

    @property
    def disk_bytes(self) -> int: ...
    @property
    def live_bytes(self) -> int: ...


async def of_services(services: Iterable[Traffic], now: float) -> list[Family]:
    """Return the metrics of services at the instant `now`; let the event loop turn in between.

    A status appears with the first request that ends with it, except for ok, failed, overloaded
    and poisoned.
    """
    accepted, ended = Family(metrics.ACCEPTED), Family(metrics.ENDED)
    redelivered, took = Family(metrics.REDELIVERED), Family(metrics.TOOK)
    received, sent = Family(metrics.RECEIVED), Family(metrics.SENT)
    queued, unserved = Family(metrics.QUEUED), Family(metrics.UNSERVED)
    in_progress, oldest = Family(metrics.IN_PROGRESS), Family(metrics.OLDEST)
    workers, paused = Family(metrics.WORKERS), Family(metrics.PAUSED)
    for number, each in enumerate(services, 1):
        if number % _PER_TURN == 0:
            await asyncio.sleep(0)
        name, tally = each.name, each.tally
        accepted.add(tally[at.ACCEPTED], name)
        redelivered.add(tally[at.REDELIVERED], name)
        received.add(tally[at.RECEIVED], name)
        sent.add(tally[at.SENT], name)
        took.add_durations(tally[at.TOOK], tally[at.TOOK_NS] / _NS, name)
        for (status, word), count in zip(_STATUSES, tally[at.ENDED], strict=True):
            if count or status in _ENDED_FROM_START:
                ended.add(count, name, word)
        queued.add(each.queued, name)
        unserved.add(each.unserved, name)
        in_progress.add(each.in_progress, name)
        oldest.add(0.0 if each.oldest_at == inf else max(0.0, now - each.oldest_at), name)
        workers.add(each.idle, name, "idle")
        workers.add(each.busy, name, "busy")
        workers.add(each.draining, name, "draining")
        workers.add(each.blocked, name, "blocked")
        paused.add(each.paused, name)
    return [
        accepted,
        ended,
        redelivered,
        took,
        received,
        sent,
        queued,
        unserved,
        in_progress,
        oldest,
        workers,
        paused,
    ]


def of_broker(census: Census) -> list[Family]:
    """Return the metrics of a broker as a whole."""
    refused, denied = Family(metrics.REFUSED), Family(metrics.DENIED)
    for (status, word), count in zip(_STATUSES, census.refused, strict=True):
        if count or status in _REFUSED_FROM_START:
            refused.add(count, word)
    for verb in _VERBS:
        denied.add(census.denied.get(verb, 0), verb)
    peers = Family(metrics.PEERS)
    peers.add(census.clients, "client")
    peers.add(census.workers, "worker")
    peers.add(census.newcomers, "newcomer")
    single = singles(
        (metrics.UNREAD, census.unread),
        (metrics.SERVICES, len(census.services)),
        (metrics.SERVICES_MAX, census.services_max),
        (metrics.PENDING, census.pending),
        (metrics.PENDING_BYTES, census.pending_size),
        (metrics.PENDING_BYTES_MAX, census.pending_size_max),
    )
    return [refused, denied, peers, *single]


def of_pair(view: PairView) -> list[Family]:
    """Return the metrics of a server of a pair."""
    return singles(
        (metrics.PAIR_ACTIVE, view.serves),
        (metrics.PAIR_PEER_SILENT, view.peer_is_silent),
        (metrics.PAIR_EPOCH, view.epoch),
    )


def of_titanic(seen: TitanicSnapshot, store: StoreFigures) -> list[Family]:
    """Return the metrics of a Titanic."""
    stored = Family(metrics.STORED)
    stored.add(seen.waiting, "waiting")
    stored.add(seen.sent, "sent")
    stored.add(seen.answered, "answered")
    stored.add(seen.poisoned, "poisoned")
    single = singles(
        (metrics.STORING, seen.storing),
        (metrics.STORE_BYTES, store.disk_bytes),
        (metrics.STORE_LIVE_BYTES, store.live_bytes),
        (metrics.STORE_FAILED, bool(seen.failure)),
        (metrics.REPLICA_BEHIND, seen.behind),
    )
    return [stored, *single]
