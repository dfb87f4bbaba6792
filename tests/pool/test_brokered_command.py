"""`requite pool run --broker` in child processes: managers that are killed or frozen."""

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


class CommandTestbed:
    """A broker, the configuration file of a pool, and the processes of a test."""

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
        """Start a manager, wait until it prints `state`; return it and the URL of its endpoints."""
        words = ("-m", "requite.cli", "pool", "run", "--config", str(self.file))
        process = Process(*words, "--broker", self.broker.url)
        self.started.append(process)
        url = process.line().rpartition(" ")[2]
        assert process.line() == f"pool core: {state}"
        return process, url

    def workers(self) -> list[Record]:
        """Return the records of the running workers."""
        return Records(self.state / "core.default").living()

    def is_cleared(self) -> bool:
        """Kill the running workers; return whether there were none."""
        living = self.workers()
        for pid in filter(None, (record.pid for record in living)):  # 0: not known yet
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        return not living

    def requite(self, *words: str) -> tuple[int, str]:
        """Run `requite`; return its exit code, and its output followed by its errors."""
        run = subprocess.run(
            [sys.executable, "-m", "requite.cli", *words],
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            cwd=ROOT,
        )
        return run.returncode, run.stdout + run.stderr


@pytest.fixture
def testbed(tmp_path: Path) -> Iterator[CommandTestbed]:
    """A broker and the configuration of a pool; all processes are killed afterwards."""
    testbed = CommandTestbed(tmp_path, broker_process())
    yield testbed
    for process in reversed(testbed.started):
        process.dispose()
    eventually(testbed.is_cleared, "the end of all workers")


@pytest.mark.timeout(120)
def test_a_pool_from_its_first_request_to_its_end(testbed: CommandTestbed) -> None:
    first, url = testbed.manager()
    group = f"{testbed.broker.url}?pool=core&key=a%2Fb"
    # The request is sent although no worker serves the group yet.
    code, said = testbed.requite("call", group, "hi")
    assert code == 0
    assert said.startswith("a/b core.default-")
    assert (
        "1 active, 0 unbound, 1 running" in testbed.requite("pool", "status", "--manager", url)[1]
    )
    code, row = testbed.requite("pool", "ls", "--manager", url, "--json")
    assert (json.loads(row)["key"], json.loads(row)["workers"]) == ("a/b", 1)

    second, url = testbed.manager(STANDBY)
    first.kill()
    assert second.line() == "pool core: active"
    with Client(group, timeout=WAIT_S) as client:
        assert client.call(b"hi").body.decode() == said.rstrip("\n")
    assert len(testbed.workers()) == 1
    assert testbed.requite("pool", "drain", "a/b", "--manager", url) == (0, "draining a/b\n")
    eventually(lambda: not testbed.workers(), "the end of the group")

    with Client(group, timeout=WAIT_S) as client:
        client.call(b"hi")
    second.signal(signal.SIGTERM)
    assert second.ended()[0] == 0
    assert testbed.workers() == []


def test_an_invalid_broker_url_is_named(testbed: CommandTestbed) -> None:
    code, said = testbed.requite(
        "pool", "run", "--config", str(testbed.file), "--broker", "mdp://u:secret@localhost:no"
    )
    assert code == 2
    assert "broker.url" in said
    assert "secret" not in said


@pytest.mark.long
@pytest.mark.timeout(180)
def test_a_frozen_manager_becomes_the_standby_when_it_resumes(testbed: CommandTestbed) -> None:
    first, _ = testbed.manager()
    second, url = testbed.manager(STANDBY)
    group = f"{testbed.broker.url}?pool=core&key=1"
    with Client(group, timeout=WAIT_S) as client:
        worker = client.call(b"hi").body
        first.signal(signal.SIGSTOP)
        assert second.line() == "pool core: active"
        first.signal(signal.SIGCONT)
        assert first.line() == "pool core: connecting to the broker"
        assert first.line() == f"pool core: {STANDBY}"
        assert client.call(b"hi").body == worker
    assert testbed.requite("pool", "ls", "--manager", url)[1].count("1 worker") == 1
