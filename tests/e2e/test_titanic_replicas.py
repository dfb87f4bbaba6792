"""Two Titanics as processes, of which any may be killed, stopped, full, or promoted."""

from __future__ import annotations

import json
import signal
from itertools import cycle, islice
from pathlib import Path
from time import sleep
from typing import Any

import pytest
from tests.support.gate import Gate
from tests.support.live import BrokerProcess, Process, eventually
from tests.support.patience import failure
from tests.support.submitter import SERVICE, Submitter, acknowledged
from tests.support.voyage import INTERVAL, PROGRESS

import requite

pytestmark = pytest.mark.e2e


def stats(url: str) -> dict[str, Any]:
    """Return what the Titanic there tells of itself."""
    with requite.Client(url, timeout=10) as client:
        told: dict[str, Any] = json.loads(client.call(b"", service="titanic.stats").frames[1])
    return told


def behind(url: str) -> int:
    """Return how many records the replica of the Titanic there lacks."""
    return int(stats(url)["behind"])


class Twins:
    """A primary in step with its standby, each inside a broker of its own."""

    def __init__(self, folder: Path, processes: list[Process], *standby: str) -> None:
        self._folder = folder
        self._processes = processes
        self._standby_options = standby
        self.cast: dict[str, BrokerProcess] = {}
        self.start("standby")
        self.start("primary")

    def start(self, role: str, *options: str) -> BrokerProcess:
        """Start one of them where it was."""
        before = self.cast.get(role)
        if role == "standby":
            options = (*(options or self._standby_options), "--titanic-standby")
        else:
            url = self.cast["standby"].url
            options = ("--titanic-replica", url, "--titanic-replica-mode", "sync", *options)
        where = {} if before is None else {"bind": before.endpoint}
        folder = str(self._folder / role)
        self.cast[role] = process = BrokerProcess(*INTERVAL, "--titanic", folder, *options, **where)
        self._processes.append(process)
        return process

    def kill(self, role: str) -> None:
        self.cast[role].forget_observer()
        self.cast[role].kill()

    def promote(self) -> None:
        """Let the standby take over."""
        with requite.Client(self.cast["standby"].url, timeout=60) as client:
            assert client.call(b"", service="titanic.promote").frames[0] == b"200"

    def check(self, promised: dict[str, bytes]) -> None:
        """The standby, promoted, has all that was promised."""
        url = self.cast["standby"].url
        self._processes.append(Gate(self._folder).worker(url, *INTERVAL, services=SERVICE))
        with requite.Client(url, timeout=60) as client:
            for ticket, body in promised.items():
                assert client.result(ticket).body == body


@pytest.mark.timeout(900)
@pytest.mark.parametrize("troubles", [4, pytest.param(60, marks=pytest.mark.long)])
def test_in_step_nothing_that_was_acknowledged_is_lost_whatever_happens_to_the_two(
    tmp_path: Path, processes: list[Process], troubles: int
) -> None:
    """The standby is killed, or hangs; the primary is killed; each while requests come and run. In
    the end the primary is gone for good."""
    twins = Twins(tmp_path, processes)
    tickets = tmp_path / "tickets"
    url = twins.cast["primary"].url
    processes.append(Gate(tmp_path).worker(url, *INTERVAL, services=SERVICE))
    submitter = Submitter(url, tickets)
    processes.append(submitter)

    def await_progress() -> None:
        before = len(acknowledged(tickets))
        eventually(lambda: len(acknowledged(tickets)) >= before + PROGRESS, "it goes on", 60)

    await_progress()
    for trouble in islice(cycle(("hangs", "standby", "primary")), troubles):
        if trouble == "hangs":
            twins.cast["standby"].signal(signal.SIGSTOP)
            sleep(1.0)  # so long it takes nothing; there is nothing to wait for
            twins.cast["standby"].signal(signal.SIGCONT)
        else:
            twins.kill(trouble)
            twins.start(trouble)
        await_progress()
    twins.kill("primary")
    submitter.kill()
    promised = acknowledged(tickets)
    assert len(promised) > troubles * PROGRESS
    twins.promote()
    twins.check(promised)


@pytest.mark.timeout(120)
def test_a_primary_that_still_runs_when_its_standby_is_promoted(
    tmp_path: Path, processes: list[Process]
) -> None:
    """It stops by itself, also when it is started again; and nothing it has acknowledged is lost,
    nor run by both."""
    twins = Twins(tmp_path, processes)
    url = twins.cast["primary"].url
    with requite.Client(f"{url}/{SERVICE}", timeout=30) as client:
        tickets = {client.submit(b"%d" % number): b"%d" % number for number in range(5)}
        twins.promote()
        eventually(lambda: stats(url)["superseded"], "it knows")

        def is_refused() -> None:
            failure(
                requite.StoreUnavailable,
                "was superseded: its replica was",
                lambda timeout: client.submit(b"x", timeout=timeout),
            )

        is_refused()
        twins.kill("primary")
        twins.start("primary")
        is_refused()
    gate = Gate(tmp_path)
    processes.append(gate.worker(url, *INTERVAL, services=SERVICE))  # nothing comes to it
    twins.check(tickets)
    assert stats(url)["waiting"] == len(tickets)
    twins.kill("primary")
    _, told = twins.cast["primary"].ended()
    assert told.count("superseded") <= 1  # it knew by itself, from its log


@pytest.mark.timeout(120)
def test_a_standby_that_is_full_makes_the_primary_wait_and_catches_up_when_it_has_room(
    tmp_path: Path, processes: list[Process]
) -> None:
    twins = Twins(tmp_path, processes, "--titanic-disk-max", "5m")
    url = twins.cast["primary"].url
    accepted: dict[str, bytes] = {}
    with requite.Client(f"{url}/{SERVICE}", timeout=30) as client:

        def submit(number: int) -> None:
            body = b"%d " % number + bytes(200_000)
            accepted[client.submit(body, timeout=8.0)] = body

        def submit_many() -> None:
            for number in range(60):
                submit(number)

        with pytest.raises(requite.StoreUnavailable, match=r"replica.*disk_bytes_max"):
            submit_many()
        assert len(accepted) > 5
        assert "disk_bytes_max" in stats(url)["trouble"]
        twins.kill("standby")
        twins.start("standby", "--titanic-disk-max", "200m")
        submit(99)
    eventually(lambda: behind(url) == 0, "the standby has everything")
    twins.kill("primary")
    twins.promote()
    twins.check(accepted)


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
