"""Broker, Titanic, worker and client as processes that tests kill and restart."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tests.support.gate import Gate
from tests.support.live import BrokerProcess, Process, eventually
from tests.support.submitter import SERVICE, Submitter, acknowledged

import requite

PROGRESS: Final = 20  # requests to be acknowledged between two kills
INTERVAL: Final = ("--heartbeat-interval", "0.2", "--liveness", "3")
QUICK: Final = ("--attempt-timeout", "3")


class TitanicProcess(Process):
    """`requite titanic` as a process; its start waits until it serves."""

    def __init__(self, url: str, folder: Path, *options: str) -> None:
        super().__init__(
            *("-m", "requite.cli", "titanic", "--broker", url, "--dir", str(folder)),
            *(QUICK + options),
        )
        line = self.line()
        assert line.startswith("serving titanic "), line


class Voyage:
    """Broker, Titanic, worker and client in processes; `cast` has the current one of each role.

    `inside`: Titanic runs in the broker's process. A restarted broker listens at the same address,
    and a restarted Titanic uses the same folder.
    """

    def __init__(
        self,
        folder: Path,
        processes: list[Process],
        *,
        inside: bool,
        client: Callable[[str, Path], Process] = Submitter,
    ) -> None:
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
            "client": lambda: client(self.url, self.tickets),
        }
        if not inside:
            self._make["titanic"] = lambda: TitanicProcess(self.url, self._folder / "kept")
        for role in ("titanic", "worker", "client"):
            if role in self._make:
                self.start(role)

    @property
    def roles(self) -> list[str]:
        """The roles that have a process."""
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
        """Start a new process of this role."""
        self.cast[role] = self._own(self._make[role]())

    def kill(self, role: str) -> None:
        """Kill the process of this role with SIGKILL."""
        if role == "broker":
            self.cast[role].forget_observer()
        self.cast[role].kill()

    def await_progress(self, count: int = PROGRESS) -> None:
        """Wait until `count` more requests have been acknowledged."""
        before = len(acknowledged(self.tickets))
        eventually(
            lambda: len(acknowledged(self.tickets)) >= before + count, "requests are accepted", 30
        )

    def check(self, url: str) -> int:
        """Assert that each acknowledged request has its reply; return the number of requests."""
        promised = acknowledged(self.tickets)
        with requite.Client(url, timeout=60) as client:
            for ticket, body in promised.items():
                assert client.result(ticket).body == body
        return len(promised)
