"""Two machines that lose power at any moment: synchronous acknowledgements survive either."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from random import Random
from typing import TypeVar

import pytest
from tests.titanic.life import Life

from requite.errors import CallTimeout
from requite.protocols.titanic.inputs import Answered
from requite.protocols.titanic.policy import Replicate
from requite.protocols.titanic.wire import CLOSE, PROMOTE, REPLY, REQUEST
from requite.sim.titanic.disk import Killed, SimDisk
from requite.titanic.store import StoreSettings

T = TypeVar("T")
SYNCED = StoreSettings(segment_size_bytes=4096, compact_below=0.8)


class Machine:
    """A Titanic on a disk that loses what was not synced; it is started again when it dies. Each
    run of a request has another reply. `is_linked`: its replica can be reached."""

    def __init__(self, name: str, random: Random, runs: Iterator[int], **policy: object) -> None:
        self.random = random
        self._runs = runs
        self.disk = SimDisk()
        self.is_linked = self.serves = True
        self.lives = 0
        self.now = 100.0
        self._seed = name
        self._policy = policy
        self.life = self._start()

    def _start(self) -> Life:
        self.lives += 1
        seed = Random(f"{self._seed} {self.lives}").randrange(1 << 30)
        life = Life(self.disk, SYNCED, now=self.now, seed=seed, key_window_s=3.0, **self._policy)
        life.reply_of = lambda frames: b"%d:" % next(self._runs) + b"".join(frames)
        life.wait(0.0)
        return life

    def do(self, what: Callable[[Life], T], other: Machine) -> T | None:
        """Feed it an input; None if it has died of it."""
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
        """Start it again, if its disk has stopped."""
        while self.disk.operations == self.disk.stop_at:
            self.now = max(self.now, self.life.now)
            is_cut = self.random.random() < 0.7
            self.disk = (
                self.disk.after_power_cut(self.random) if is_cut else self.disk.after_death()
            )
            if self.random.random() < 0.2:  # and dies while it starts
                self.disk.stop_at = self.random.randrange(8)
            with suppress(Killed):
                self.life = self._start()


class Customer:
    """Somebody who submits, collects and closes, and remembers what he was told.

    `kept`: tickets, and what was asked; `given`: their replies; `closing` are those that he has
    closed, or tried to, and `closed` those of which that was confirmed.
    """

    def __init__(self, random: Random, primary: Machine, replica: Machine) -> None:
        self.kept: dict[bytes, bytes] = {}
        self.given: dict[bytes, bytes] = {}
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
                assert self.given.setdefault(ticket, answer[1]) == answer[1]

    def close(self) -> None:
        """Close something, or try again."""
        for ticket in self._some(self.closing - self.closed) + self._some(self.kept)[:1]:
            self.kept.pop(ticket, None)
            self.closing.add(ticket)
            if self._ask(CLOSE, ticket) == [b"200"]:
                self.closed.add(ticket)

    def check(self) -> None:
        """All of that is so at the replica, which has taken over."""
        life = self._replica.life
        for ticket, body in self.kept.items():
            status, reply = life.ask(REPLY, ticket)
            assert (status, reply.partition(b":")[2]) == (b"200", body)
            assert self.given.get(ticket, reply) == reply
        for ticket in self.closed:
            assert life.ask(REPLY, ticket)[0].startswith(b"400 no such request")

    def _some(self, tickets: dict[bytes, bytes] | set[bytes]) -> list[bytes]:
        return self._random.sample(sorted(tickets), min(3, len(tickets)))

    def _ask(self, service: str, *frames: bytes) -> list[bytes] | None:
        """Ask; None if there is no answer yet, and so none that anybody could rely on."""

        def ask(life: Life) -> list[bytes] | None:
            return life.answers.get(life.begin(service, *frames))

        return self._primary.do(ask, self._replica)


@pytest.mark.parametrize("cut_at", [250, 190], ids=["linked to the end", "cut off at the end"])
@pytest.mark.parametrize("seed", [*range(6), 150, 212])
def test_what_was_told_in_step_survives_the_loss_of_either_disk(seed: int, cut_at: int) -> None:
    """Both machines lose power, again and again, at any operation of their disks, and the link
    between them may break for good. Then the first one is gone, and the other one has all that was
    told: requests, the very replies that were given, and what was closed."""
    random, runs = Random(seed), count(1)
    replica = Machine(f"{seed} replica", random, runs, standby=True)
    primary = Machine(f"{seed} primary", random, runs, replicate=Replicate.SYNC)
    customer = Customer(random, primary, replica)
    for at in range(250):
        primary.is_linked = at < cut_at
        primary.serves = random.random() < 0.5
        lot = random.random()
        if lot < 0.1:
            hit = random.choice([primary, replica])
            hit.disk.stop_at = hit.disk.operations + random.randrange(6)
        if lot < 0.5:
            customer.submit(b"%d" % at + b"x" * random.randrange(100))
        elif lot < 0.6:
            customer.close()
        elif lot < 0.7:
            customer.collect()
        elif lot < 0.75:
            primary.do(lambda life: life.compact(5), replica)
        else:
            primary.do(lambda life: life.wait(2.0), replica)
        primary.do(forget_calls, replica)
    replica.disk.stop_at = -1
    assert len(customer.kept) > 10
    assert replica.life.ask(PROMOTE) == [b"200"]
    replica.life.wait(100.0)
    customer.check()
    assert customer.given.keys() & customer.kept.keys()
    assert customer.closed


def forget_calls(life: Life) -> None:
    """A request that died with its machine is never answered."""
    calls, life.submits = life.submits, []
    life.feed([Answered(call.token, CallTimeout("it died")) for call in calls])
