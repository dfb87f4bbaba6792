"""Synchronous replication under power cuts: acknowledgements survive the loss of either machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from random import Random
from typing import TypeVar

import pytest
from tests.titanic.life import LocalTitanic

from requite.errors import CallTimeout
from requite.protocols.titanic.inputs import Answered
from requite.protocols.titanic.policy import Replicate
from requite.protocols.titanic.wire import CLOSE, PROMOTE, REPLY, REQUEST
from requite.sim.kernel.disk import Killed, SimDisk
from requite.titanic.store import StoreSettings

T = TypeVar("T")
SYNCED = StoreSettings(segment_size_bytes=4096, compact_below=0.8)


class Machine:
    """A Titanic on a disk that loses unsynced data at a power cut. It is restarted when it dies.

    Each run of a request returns a different reply. `is_linked`: the replica is reachable.
    """

    def __init__(self, name: str, random: Random, runs: Iterator[int], **policy: object) -> None:
        self.random = random
        self._runs = runs
        self.disk = SimDisk()
        self.is_linked = self.serves = True
        self.starts = 0
        self.now = 100.0
        self._seed = name
        self._policy = policy
        self.life = self._start()

    def _start(self) -> LocalTitanic:
        self.starts += 1
        seed = Random(f"{self._seed} {self.starts}").randrange(1 << 30)
        life = LocalTitanic(
            self.disk, SYNCED, now=self.now, seed=seed, key_window_s=3.0, **self._policy
        )
        life.reply_of = lambda frames: b"%d:" % next(self._runs) + b"".join(frames)
        life.wait(0.0)
        return life

    def do(self, what: Callable[[LocalTitanic], T], other: Machine) -> T | None:
        """Call `what` with the Titanic; return its result, or None if the process died."""
        self.life.replica = other.life if self.is_linked else None
        self.life.serves = self.serves
        try:
            return what(self.life)
        except Killed:
            return None
        finally:
            self.maybe_restart()
            other.maybe_restart()

    def maybe_restart(self) -> None:
        """Restart the process if its disk has stopped."""
        while self.disk.operations == self.disk.stop_at:
            self.now = max(self.now, self.life.now)
            is_cut = self.random.random() < 0.7
            self.disk = (
                self.disk.after_power_cut(self.random) if is_cut else self.disk.after_death()
            )
            if self.random.random() < 0.2:  # the process dies again during its start
                self.disk.stop_at = self.random.randrange(8)
            with suppress(Killed):
                self.life = self._start()


class Client:
    """A client that submits, collects and closes, and remembers the acknowledged answers.

    `kept` maps tickets to bodies; `replies` maps them to the replies received. `closing` are the
    tickets whose CLOSE was sent; `closed` are those whose CLOSE was confirmed.
    """

    def __init__(self, random: Random, primary: Machine, replica: Machine) -> None:
        self.kept: dict[bytes, bytes] = {}
        self.replies: dict[bytes, bytes] = {}
        self.closing: set[bytes] = set()
        self.closed: set[bytes] = set()
        self._random = random
        self._primary = primary
        self._replica = replica

    def submit(self, body: bytes) -> None:
        answer = self._ask(REQUEST, b"echo", body)
        if answer and answer[0] == b"200":
            self.kept[answer[1]] = body

    def collect(self) -> None:
        for ticket in self._some(self.kept):
            answer = self._ask(REPLY, ticket)
            if answer and answer[0] == b"200":
                assert self.replies.setdefault(ticket, answer[1]) == answer[1]

    def close(self) -> None:
        """Close some requests; retry unconfirmed ones."""
        for ticket in self._some(self.closing - self.closed) + self._some(self.kept)[:1]:
            self.kept.pop(ticket, None)
            self.closing.add(ticket)
            if self._ask(CLOSE, ticket) == [b"200"]:
                self.closed.add(ticket)

    def check(self) -> None:
        """Check that the promoted replica has everything that was acknowledged."""
        life = self._replica.life
        for ticket, body in self.kept.items():
            status, reply = life.ask(REPLY, ticket)
            assert (status, reply.partition(b":")[2]) == (b"200", body)
            assert self.replies.get(ticket, reply) == reply
        for ticket in self.closed:
            assert life.ask(REPLY, ticket)[0].startswith(b"400 no such request")

    def _some(self, tickets: dict[bytes, bytes] | set[bytes]) -> list[bytes]:
        return self._random.sample(sorted(tickets), min(3, len(tickets)))

    def _ask(self, service: str, *frames: bytes) -> list[bytes] | None:
        """Send a request; return the answer, or None if there is none yet."""

        def ask(life: LocalTitanic) -> list[bytes] | None:
            return life.answers.get(life.begin(service, *frames))

        return self._primary.do(ask, self._replica)


@pytest.mark.parametrize("cut_at", [250, 190], ids=["linked to the end", "cut off at the end"])
@pytest.mark.parametrize("seed", [*range(6), 150, 212])
def test_sync_acknowledgements_survive_the_loss_of_the_primary(seed: int, cut_at: int) -> None:
    """Both machines lose power repeatedly, at any disk operation; the link may break for good.

    Then the primary is lost. The promoted replica has everything that was acknowledged: requests,
    the
    exact replies, and closed requests.
    """
    random, runs = Random(seed), count(1)
    replica = Machine(f"{seed} replica", random, runs, standby=True)
    primary = Machine(f"{seed} primary", random, runs, replicate=Replicate.SYNC)
    client = Client(random, primary, replica)
    for at in range(250):
        primary.is_linked = at < cut_at
        primary.serves = random.random() < 0.5
        lot = random.random()
        if lot < 0.1:
            hit = random.choice([primary, replica])
            hit.disk.stop_at = hit.disk.operations + random.randrange(6)
        if lot < 0.5:
            client.submit(b"%d" % at + b"x" * random.randrange(100))
        elif lot < 0.6:
            client.close()
        elif lot < 0.7:
            client.collect()
        elif lot < 0.75:
            primary.do(lambda life: life.compact(5), replica)
        else:
            primary.do(lambda life: life.wait(2.0), replica)
        primary.do(forget_calls, replica)
    replica.disk.stop_at = -1
    assert len(client.kept) > 10
    assert replica.life.ask(PROMOTE) == [b"200"]
    replica.life.wait(100.0)
    client.check()
    assert client.replies.keys() & client.kept.keys()
    assert client.closed


def forget_calls(life: LocalTitanic) -> None:
    """Let all pending calls fail: the machine that made them has died."""
    calls, life.submits = life.submits, []
    life.feed([Answered(call.token, CallTimeout("it died")) for call in calls])
