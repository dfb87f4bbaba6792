"""Anybody may be killed, at any moment: nothing that was acknowledged is lost.

Broker, Titanic, worker and client are processes. They are killed in turn, each while requests are
submitted and answered all the time; in the end every ticket that a client was given has its reply,
and it is the right one.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import pytest
from tests.support.gate import Gate
from tests.support.live import BrokerProcess, Process, eventually
from tests.support.submitter import SERVICE, Submitter, acknowledged

import requite

pytestmark = pytest.mark.e2e

PROGRESS = 20  # so many more requests are acknowledged before the next one is killed
INTERVAL = ("--heartbeat-interval", "0.2", "--liveness", "3")
QUICK = ("--attempt-timeout", "3")


class TitanicProcess(Process):
    """`requite titanic` as a process, which has said that it serves."""

    def __init__(self, url: str, folder: Path, *options: str) -> None:
        super().__init__(
            *("-m", "requite.cli", "titanic", "--broker", url, "--dir", str(folder)),
            *(QUICK + options),
        )
        line = self.line()
        assert line.startswith("serving titanic "), line


class Voyage:
    """The processes, by role; `restart` kills one and starts it again where it was."""

    def __init__(self, folder: Path, processes: list[Process], *, inside: bool) -> None:
        self.tickets = folder / "tickets"
        self._folder = folder
        self._processes = processes
        self._gate = Gate(folder)
        self._inside = inside
        self.cast: dict[str, Any] = {}
        self.cast["broker"] = self._own(self._broker())
        self.url = self.cast["broker"].url
        self._make: dict[str, Callable[[], Process]] = {
            "broker": lambda: self._broker(bind=self.cast["broker"].endpoint),
            "worker": lambda: self._gate.worker(self.url, *INTERVAL, services=SERVICE),
            "client": lambda: Submitter(self.url, self.tickets),
        }
        if not inside:
            self._make["titanic"] = lambda: TitanicProcess(self.url, self._folder / "kept")
        for role in ("titanic", "worker", "client"):
            if role in self._make:
                self.start(role)

    @property
    def roles(self) -> list[str]:
        """Who there is."""
        return list(self._make)

    def _own(self, process: Process) -> Process:
        self._processes.append(process)
        return process

    def _broker(self, **where: str) -> BrokerProcess:
        options = [*INTERVAL]
        if self._inside:
            kept = str(self._folder / "kept")
            options += ["--titanic", kept, "--titanic-attempt-timeout", "3"]
        return BrokerProcess(*options, **where)

    def start(self, role: str) -> None:
        """Start whoever plays this role."""
        self.cast[role] = self._own(self._make[role]())

    def kill(self, role: str) -> None:
        """End whoever plays this role, without a warning."""
        if role == "broker":
            self.cast[role].forget_observer()
        self.cast[role].kill()

    def await_progress(self, count: int = PROGRESS) -> None:
        """Wait until so many more requests have been acknowledged."""
        before = len(acknowledged(self.tickets))
        eventually(
            lambda: len(acknowledged(self.tickets)) >= before + count, "requests are accepted", 30
        )

    def check(self, url: str) -> int:
        """Have all replies that were promised; return how many."""
        promised = acknowledged(self.tickets)
        with requite.Client(url, timeout=60) as client:
            for ticket, body in promised.items():
                assert client.result(ticket).body == body
        return len(promised)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kills", [4, pytest.param(60, marks=pytest.mark.long)])
@pytest.mark.parametrize("inside", [True, False], ids=["inside the broker", "beside it"])
def test_nothing_that_was_acknowledged_is_lost_whoever_is_killed(
    tmp_path: Path, processes: list[Process], inside: bool, kills: int
) -> None:
    voyage = Voyage(tmp_path, processes, inside=inside)
    voyage.await_progress()
    for role in islice(cycle(voyage.roles), kills):
        voyage.kill(role)
        voyage.start(role)
        voyage.await_progress(random.randrange(1, PROGRESS))
    voyage.kill("client")
    assert voyage.check(voyage.url) >= kills


def test_what_waits_for_a_worker_outlives_everybody(
    tmp_path: Path, processes: list[Process]
) -> None:
    voyage = Voyage(tmp_path, processes, inside=True)
    voyage.kill("worker")
    voyage.await_progress(60)
    for role in ("client", "broker"):
        voyage.kill(role)
    voyage.start("broker")
    voyage.start("worker")
    assert voyage.check(voyage.url) >= 60


def test_a_second_titanic_on_the_folder_is_refused(
    tmp_path: Path, processes: list[Process]
) -> None:
    voyage = Voyage(tmp_path, processes, inside=True)
    voyage.await_progress(1)
    kept = str(tmp_path / "kept")
    second = Process("-m", "requite.cli", "titanic", "--broker", voyage.url, "--dir", kept)
    processes.append(second)
    code, told = second.ended()
    assert code == 2
    assert "is being written by another" in told
    voyage.await_progress(1)


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_replica_has_everything_that_was_acknowledged_and_takes_over(
    tmp_path: Path, processes: list[Process], mode: str
) -> None:
    """With sync at any moment; with async once it had been sent everything."""
    standby = BrokerProcess(*INTERVAL, "--titanic", str(tmp_path / "copy"), "--titanic-standby")
    processes.append(standby)
    options = ("--titanic-replica", standby.url, "--titanic-replica-mode", mode)
    primary = BrokerProcess(*INTERVAL, "--titanic", str(tmp_path / "kept"), *options)
    submitter = Submitter(primary.url, tmp_path / "tickets")
    processes += [primary, submitter]

    def accepted() -> int:
        return len(acknowledged(tmp_path / "tickets"))

    eventually(lambda: accepted() >= 50, "requests are accepted", 30)
    if mode == "async":
        submitter.kill()
        eventually(lambda: behind(primary.url) == 0, "the replica has everything")
    primary.kill()
    submitter.kill()
    promised = acknowledged(tmp_path / "tickets")
    processes.append(Gate(tmp_path).worker(standby.url, *INTERVAL, services=SERVICE))
    with requite.Client(standby.url, timeout=60) as client:
        assert client.call(b"", service="titanic.promote").frames[0][:3] == b"200"
        assert all(client.result(ticket).body == body for ticket, body in promised.items())


def behind(url: str) -> int:
    """Return how many records the replica of the Titanic there lacks."""
    import json

    with requite.Client(url, timeout=10) as client:
        told = json.loads(client.call(b"", service="titanic.stats").frames[1])
    count: int = told["behind"]
    return count


def test_a_replica_that_was_away_is_sent_what_it_missed(
    tmp_path: Path, processes: list[Process]
) -> None:
    copy = ("--titanic", str(tmp_path / "copy"), "--titanic-standby")
    standby = BrokerProcess(*INTERVAL, *copy)
    processes.append(standby)
    kept = ("--titanic", str(tmp_path / "kept"), "--titanic-replica", standby.url)
    primary = BrokerProcess(*INTERVAL, *kept)
    processes.append(primary)
    with requite.Client(f"{primary.url}/{SERVICE}", timeout=30) as client:
        tickets = {client.submit(b"before"): b"before"}
        eventually(lambda: behind(primary.url) == 0, "the replica has it")
        standby.kill()
        tickets |= {client.submit(b"%d" % number): b"%d" % number for number in range(20)}
        forgotten = client.submit(b"forgotten")
        client.forget(forgotten)
    assert behind(primary.url) > 20
    standby = BrokerProcess(*INTERVAL, *copy, bind=standby.endpoint)
    processes.append(standby)
    eventually(lambda: behind(primary.url) == 0, "the replica has everything again")
    primary.kill()
    processes.append(Gate(tmp_path).worker(standby.url, *INTERVAL, services=SERVICE))
    with requite.Client(standby.url, timeout=60) as client:
        with pytest.raises(requite.CallTimeout):  # it runs nothing yet
            client.result(next(iter(tickets)), timeout=0.5)
        assert client.call(b"", service="titanic.promote").frames[0][:3] == b"200"
        assert all(client.result(ticket).body == body for ticket, body in tickets.items())
        with pytest.raises(requite.UnknownTicket):
            client.result(forgotten)
