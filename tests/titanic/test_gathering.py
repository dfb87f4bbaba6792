"""Group commit with a simulated disk: how many requests are stored, and how long each takes."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import NamedTuple

import pytest

from requite.engine import Input, Load, Store, Stored
from requite.protocols.titanic.records import encode_submitted
from requite.titanic.gathering import Gathering
from requite.titanic.store import open_memory

MS = 1e-3
CPU_S = 20e-6  # of the server, for a request and for its acknowledgement
CLIENT_S = 0.3 * MS  # from an acknowledgement to the next request
HORIZON_S = 0.4


class Hasty(Gathering):
    """Commits at once whatever is queued."""

    def patience_s(self, records: int, now: float) -> float:
        """Return no time."""
        return 0.0


class Outcome(NamedTuple):
    """Stored requests per second, and the mean time that each took in seconds."""

    rate: float
    took_s: float


class Server:
    """A server with one processor and a disk whose syncs take `sync_s`, in virtual time.

    Each of `clients` submits its next request when one is acknowledged; `rate` more requests per
    second arrive at random.
    """

    def __init__(
        self, gathering: Gathering, sync_s: float, *, clients: int = 0, rate: float = 0.0
    ) -> None:
        self._gathering = gathering
        self._sync_s = sync_s
        self._rate = rate
        self._rng = Random(1)
        self._serial = count()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._now = self._free_at = 0.0
        self._queue: list[tuple[float, bool]] = []  # when submitted, and whether by a client
        self._syncing = False
        self._until: float | None = None
        self._times: list[float] = []
        for _ in range(clients):
            self._after(self._rng.random() * (sync_s + MS), self._submit, True)
        if rate:
            self._after(0.0, self._arrive)

    def run(self) -> Outcome:
        """Run, and return the outcome."""
        while self._now < HORIZON_S:
            self._now, _, happens = heappop(self._events)
            happens()
        return Outcome(len(self._times) / self._now, sum(self._times) / len(self._times))

    def _after(self, delay_s: float, happens: Callable[..., None], *given: object) -> None:
        happening = (self._now + delay_s, next(self._serial), lambda: happens(*given))
        heappush(self._events, happening)

    def _processed_in(self) -> float:
        self._free_at = max(self._free_at, self._now) + CPU_S
        return self._free_at - self._now

    def _arrive(self) -> None:
        self._submit(False)
        self._after(self._rng.expovariate(self._rate), self._arrive)

    def _submit(self, is_client: bool) -> None:
        self._after(self._processed_in(), self._queued, self._now, is_client)

    def _queued(self, at: float, is_client: bool) -> None:
        self._queue.append((at, is_client))
        self._maybe_commit()

    def _maybe_commit(self) -> None:
        gathering, records = self._gathering, len(self._queue)
        if self._syncing or not records:
            return
        if self._until is None:
            patience_s = gathering.patience_s(records, self._now)
            if patience_s:
                self._until = self._now + patience_s
                self._after(patience_s, self._maybe_commit)
                return
        elif not gathering.is_enough(records) and self._now < self._until:
            return
        else:
            gathering.waited(records)
        self._until = None
        batch, self._queue = self._queue, []
        self._syncing = True
        self._after(self._sync_s * self._rng.uniform(0.8, 1.2), self._synced, batch, self._now)

    def _synced(self, batch: list[tuple[float, bool]], began_at: float) -> None:
        self._syncing = False
        self._gathering.committed(len(batch), began_at, self._now)
        self._gathering.expect(len(self._queue))
        for at, is_client in batch:
            processed_s = self._processed_in()
            self._times.append(self._now + processed_s - at)
            if is_client:
                self._after(processed_s + CLIENT_S, self._submit, True)
        self._maybe_commit()


@pytest.mark.parametrize("clients", [4, 16, 64])
def test_on_a_slow_disk_clients_share_each_sync(clients: int) -> None:
    outcome = Server(Gathering(), 10 * MS, clients=clients).run()
    hasty = Server(Hasty(), 10 * MS, clients=clients).run()
    assert outcome.rate > 1.5 * hasty.rate
    assert outcome.took_s < 0.7 * hasty.took_s


@pytest.mark.parametrize("clients", [1, 16, 256])
def test_on_a_fast_disk_no_time_is_lost(clients: int) -> None:
    outcome = Server(Gathering(), 0.1 * MS, clients=clients).run()
    hasty = Server(Hasty(), 0.1 * MS, clients=clients).run()
    assert outcome.rate > 0.98 * hasty.rate


@pytest.mark.parametrize("sync_ms", [0.3, 1, 3, 30])
@pytest.mark.parametrize("clients", [2, 16, 64, 256])
def test_between_them_little_is_lost(sync_ms: float, clients: int) -> None:
    """The worst case is that clients need about half the time of a sync."""
    outcome = Server(Gathering(), sync_ms * MS, clients=clients).run()
    hasty = Server(Hasty(), sync_ms * MS, clients=clients).run()
    assert outcome.rate > 0.85 * hasty.rate


@pytest.mark.parametrize("sync_ms", [0.1, 1, 10])
@pytest.mark.parametrize("rate", [200, 5000])
def test_requests_that_arrive_at_random_hardly_wait_longer(sync_ms: float, rate: float) -> None:
    outcome = Server(Gathering(), sync_ms * MS, rate=rate).run()
    hasty = Server(Hasty(), sync_ms * MS, rate=rate).run()
    assert outcome.took_s < 1.1 * hasty.took_s


def test_a_lone_client_never_waits() -> None:
    gathering = Gathering()
    for at in range(10):
        gathering.committed(1, at, at + 0.5)
        gathering.expect(0)
        assert gathering.patience_s(1, at + 0.5) == 0.0


# --- in the store ---------------------------------------------------------------------------------
class Patient(Gathering):
    """Waits for two records, however long it takes."""

    def expect(self, queued: int) -> None:
        """Expect two."""
        self._expected = 2

    def patience_s(self, records: int, now: float) -> float:
        """Wait very long for the second one."""
        return 3600.0 if records == 1 else 0.0


def _submitted(number: int) -> Store:
    record = encode_submitted(number.to_bytes(16, "big"), 1, b"echo", b"", [b"hello"])
    return Store(number, [record])


def test_the_store_commits_what_it_has_waited_for_together() -> None:
    store = open_memory()
    store._gathering = Patient()
    done: queue.SimpleQueue[list[Input]] = queue.SimpleQueue()
    store.start(done.put)
    store.submit(_submitted(1))
    store.submit(_submitted(2))
    stored = [one.ticket for one in done.get(timeout=30) if isinstance(one, Stored)]
    assert stored == [1, 2]
    assert store.view().commits == 1
    store.close()


@pytest.mark.parametrize("is_load", [True, False], ids=["load", "end"])
def test_a_load_and_the_end_do_not_wait_for_more_records(is_load: bool) -> None:
    store = open_memory()
    store._gathering = Patient()
    done: queue.SimpleQueue[list[Input]] = queue.SimpleQueue()
    store.start(done.put)
    store.submit(_submitted(1))
    closing = threading.Thread(target=store.close)
    if is_load:
        store.submit(Load("read", None))
    else:
        closing.start()
    stored = done.get(timeout=30)[0]
    assert isinstance(stored, Stored)
    assert stored.ticket == 1
    if is_load:
        closing.start()
    closing.join()
