"""The blocking dialler: one attempt at a time, and its timer."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest
from tests.shell.fakes import FakeStream, LineFraming

from requite.backoff import Backoff
from requite.errors import TransportError
from requite.shell import sync_dialler
from requite.shell.connections import AddressList
from requite.shell.link import Link
from requite.shell.sync_dialler import Dialler
from requite.transport.address import TcpAddress

A = TcpAddress("a", 1)


class FakeAttempt:
    """An attempt whose result the test sets."""

    made: list[FakeAttempt]

    def __init__(self, address: Any, _poll: Any, done: Any, failed: Any, tls: Any) -> None:
        self.address, self._done, self._failed = address, done, failed
        self.given_up = ""
        FakeAttempt.made.append(self)

    def succeed(self) -> None:
        self._done(self.address, FakeStream())

    def fail(self) -> None:
        self._failed(self.address, TransportError("refused"))

    def give_up(self, reason: str) -> None:
        self.given_up = reason
        self.fail()


class Bench:
    """A dialler, a manual clock, and a count of `planned` calls."""

    def __init__(self) -> None:
        self.now = 100.0
        self.plans = 0
        self.links: list[Link] = []
        FakeAttempt.made = []
        self.addresses = AddressList([A], Backoff(lambda: 0.0, first_s=0.5), self.clock)
        self.dialler = Dialler(None, self._planned, self.addresses, self._opened, None)  # type: ignore[arg-type]

    def want(self) -> None:
        self.addresses.want()
        self.dialler.go_on()

    def clock(self) -> float:
        return self.now

    def _planned(self) -> None:
        self.plans += 1

    def _opened(self, stream: Any) -> Link:
        self.links.append(Link(stream, LineFraming(), accepted=False))
        return self.links[-1]

    @property
    def attempt(self) -> FakeAttempt:
        return FakeAttempt.made[-1]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    made = Bench()
    monkeypatch.setattr(sync_dialler, "Attempt", FakeAttempt)
    monkeypatch.setattr(sync_dialler.clock, "now", made.clock)
    return made


def test_it_dials_when_due_and_is_then_idle(bench: Bench) -> None:
    assert bench.dialler.at == inf
    bench.want()
    assert (bench.dialler.at, bench.plans) == (100.0, 1)
    bench.dialler.act()
    assert (bench.dialler.at, bench.plans) == (110.0, 2)  # the timeout of the attempt
    bench.attempt.succeed()
    assert (bench.dialler.at, bench.plans) == (inf, 3)
    assert len(bench.links) == 1


def test_a_failure_is_retried_after_a_pause(bench: Bench) -> None:
    bench.want()
    bench.dialler.act()
    bench.attempt.fail()
    assert bench.dialler.at == 100.5
    bench.dialler.act()
    bench.attempt.fail()
    assert bench.dialler.at == 101.0
    assert len(FakeAttempt.made) == 2


def test_an_attempt_times_out(bench: Bench) -> None:
    bench.want()
    bench.dialler.act()
    bench.now = 110.0
    bench.dialler.act()
    assert bench.attempt.given_up == "no answer within 10 s"
    assert bench.dialler.at == 110.5


def test_wanted_connections_are_dialled_one_at_a_time(bench: Bench) -> None:
    bench.want()
    bench.want()
    bench.dialler.act()
    assert len(FakeAttempt.made) == 1
    bench.attempt.succeed()
    assert bench.dialler.at == 100.0
    bench.dialler.act()
    bench.attempt.succeed()
    assert (len(bench.links), bench.dialler.at) == (2, inf)


def test_a_closed_dialler_dials_nothing(bench: Bench) -> None:
    bench.want()
    bench.dialler.act()
    bench.dialler.close("the client was closed")
    assert bench.attempt.given_up == "the client was closed"
    bench.want()
    assert bench.dialler.at == inf


def test_one_of_several_addresses_times_out_sooner(bench: Bench) -> None:
    both = AddressList([A, TcpAddress("b", 1)], Backoff(lambda: 0.0), bench.clock)
    dialler = Dialler(None, lambda: None, both, bench._opened, None)  # type: ignore[arg-type]
    both.want()
    dialler.go_on()
    dialler.act()
    assert dialler.at == 101.0
    bench.now = 101.0
    dialler.act()
    assert bench.attempt.given_up == "no answer within 1 s"
    assert dialler.at == 101.0  # no back-off: the other address is next
    dialler.act()
    assert bench.attempt.address == TcpAddress("b", 1)
