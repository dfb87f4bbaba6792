"""`requite pool run --broker`: the real commands, and a manager that is killed; no RabbitMQ."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest
from tests.pool.brokered import broker_process
from tests.pool.live import COMMAND, ROOT, WAIT_S
from tests.support.live import BrokerProcess, Process, eventually

from requite import Client
from requite.pool.drivers.records import Record, Records

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

TOML: Final = """\
[pool]
name = "core"

[lifetime]
stop_delay = 0.3

[broker]
interval = 0.05
settle = 0.5

[loops]
interval = 0.2
backoff = 0.1

[http]
port = 0

[driver]
command = {command}
state_dir = {state}
log_dir = {log}
directory = {root}
"""


STANDBY: Final = "standing by, another manager is active"


class Place:
    """A broker, the settings of a pool, and what is started beside them."""

    def __init__(self, folder: Path, broker: BrokerProcess) -> None:
        self.broker = broker
        self.started: list[Process] = [broker]
        self.state = folder / "state"
        self.file = folder / "pool.toml"
        values: dict[str, Any] = {
            "command": [*COMMAND],
            "state": str(self.state),
            "log": str(folder / "log"),
            "root": str(ROOT),
        }
        self.file.write_text(
            TOML.format(**{name: json.dumps(value) for name, value in values.items()})
        )

    def manager(self, state: str = "active") -> tuple[Process, str]:
        """Start a manager; return it when it has come to this state, and where it answers."""
        words = ("-m", "requite.cli", "pool", "run", "--config", str(self.file))
        process = Process(*words, "--broker", self.broker.url)
        self.started.append(process)
        url = process.line().rpartition(" ")[2]
        assert process.line() == f"pool core: {state}"
        return process, url

    def workers(self) -> list[Record]:
        """Return the workers that run."""
        return Records(self.state / "core.default").living()

    def is_cleared(self) -> bool:
        """Kill the workers that run; return whether there was none."""
        living = self.workers()
        for pid in filter(None, (record.pid for record in living)):  # 0 is not known yet
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        return not living

    def requite(self, *words: str) -> tuple[int, str]:
        """Run the command; return its exit code, and what it printed."""
        run = subprocess.run(
            [sys.executable, "-m", "requite.cli", *words],
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            cwd=ROOT,
        )
        return run.returncode, run.stdout + run.stderr


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A broker of its own, and room for a pool; nothing is left running."""
    place = Place(tmp_path, broker_process())
    yield place
    for process in reversed(place.started):
        process.dispose()
    eventually(place.is_cleared, "the end of all workers")


@pytest.mark.timeout(120)
def test_a_pool_from_its_first_request_to_its_end(place: Place) -> None:
    first, url = place.manager()
    group = f"{place.broker.url}?pool=core&key=a%2Fb"
    code, said = place.requite("call", group, "hi")  # it does not wait for a worker to come
    assert code == 0
    assert said.startswith("a/b core.default-")
    assert "1 active, 0 unbound, 1 running" in place.requite("pool", "status", "--manager", url)[1]
    code, row = place.requite("pool", "ls", "--manager", url, "--json")
    assert (json.loads(row)["key"], json.loads(row)["workers"]) == ("a/b", 1)

    second, url = place.manager(STANDBY)
    first.kill()
    assert second.line() == "pool core: active"
    with Client(group, timeout=WAIT_S) as client:
        assert client.call(b"hi").body.decode() == said.rstrip("\n")
    assert len(place.workers()) == 1
    assert place.requite("pool", "drain", "a/b", "--manager", url) == (0, "draining a/b\n")
    eventually(lambda: not place.workers(), "the end of the group")

    with Client(group, timeout=WAIT_S) as client:
        client.call(b"hi")
    second.signal(signal.SIGTERM)
    assert second.ended()[0] == 0
    assert place.workers() == []


def test_a_url_at_which_no_pool_can_be_is_named(place: Place) -> None:
    code, said = place.requite(
        "pool", "run", "--config", str(place.file), "--broker", "mdp://u:secret@localhost:no"
    )
    assert code == 2
    assert "broker.url" in said
    assert "secret" not in said


@pytest.mark.long
@pytest.mark.timeout(180)
def test_a_manager_that_was_frozen_finds_another_one_in_its_place(place: Place) -> None:
    first, _ = place.manager()
    second, url = place.manager(STANDBY)
    group = f"{place.broker.url}?pool=core&key=1"
    with Client(group, timeout=WAIT_S) as client:
        worker = client.call(b"hi").body
        first.signal(signal.SIGSTOP)
        assert second.line() == "pool core: active"
        first.signal(signal.SIGCONT)
        assert first.line() == "pool core: connecting to the broker"
        assert first.line() == f"pool core: {STANDBY}"
        assert client.call(b"hi").body == worker
    assert place.requite("pool", "ls", "--manager", url)[1].count("1 worker") == 1
