"""`requite pool`: the real command, with a real RabbitMQ, and managers that are killed."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest
from tests.pool.live import COMMAND, ROOT, WAIT_S, Floor, until

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

REQUITE: Final = (sys.executable, "-m", "requite.cli")
TOML: Final = """\
[pool]
name = "core"

[rabbitmq]
url = {url}
management_url = {management_url}

[lifetime]
unbind_delay = 60
stop_delay = 0.3
extra_lifetime = 0.1

[limits]
delivery_limit = 1

[loops]
interval = 0.2
backoff = 0.1

[http]
port = 0

[driver]
kind = "subprocess"
command = {command}
state_dir = {state}
directory = {root}
"""


def write(floor: Floor, folder: Path) -> Path:
    """Write the settings of a pool."""
    file = folder / "pool.toml"
    values = {
        "url": floor.rabbit.url,
        "management_url": floor.rabbit.management_url,
        "command": [*COMMAND],
        "state": str(floor.state),
        "root": str(ROOT),
    }
    file.write_text(TOML.format(**{name: json.dumps(value) for name, value in values.items()}))
    return file


class Run:
    """A `requite pool run` of its own."""

    def __init__(self, file: Path, folder: Path) -> None:
        self.output = folder / f"{os.urandom(4).hex()}.out"
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [*REQUITE, "pool", "run", "--config", str(file)], stdout=output, cwd=ROOT
            )

    def said(self, text: str) -> bool:
        """Whether it has printed this."""
        return text in self.output.read_text()

    @property
    def url(self) -> str:
        """Where it answers."""
        first = next(line for line in self.output.read_text().splitlines() if "http" in line)
        return first.rpartition(" ")[2]


def requite(*words: str) -> tuple[int, str]:
    """Run the command; return its exit code, and all that it printed."""
    run = subprocess.run(
        [*REQUITE, *words], capture_output=True, text=True, timeout=WAIT_S, cwd=ROOT
    )
    return run.returncode, run.stdout + run.stderr


def as_json(*words: str) -> list[Any]:
    """Run the command with --json; return the objects that it printed."""
    code, text = requite(*words, "--json")
    assert code == 0, text
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.timeout(240)
async def test_a_pool_from_its_first_request_to_its_end(floor: Floor, tmp_path: Path) -> None:
    file = write(floor, tmp_path)
    first, second = Run(file, tmp_path), None
    try:
        await until(lambda: first.said("pool core: active"), "an active manager")
        client = await floor.client()
        worker_id = (await client.call(b"hi")).body.split()[1]
        operate(first.url)
        await until(lambda: len(floor.workers()) == 2, "two workers")

        second = Run(file, tmp_path)
        await until(lambda: second.said("standing by, another manager is active"), "a standby")
        first.process.kill()
        await until(lambda: second.said("pool core: active"), "the other manager")
        assert (await client.call(b"hi")).body.split()[1] in {
            worker_id,
            *(record.worker_id.encode() for record in floor.workers()),
        }
        assert len(floor.workers()) == 2

        assert requite("pool", "drain", "42", "--manager", second.url) == (0, "draining 42\n")
        await until(lambda: not floor.workers(), "the end of the group")
        await client.call(b"hi")
        second.process.send_signal(signal.SIGTERM)
        await until(lambda: second.process.poll() is not None, "the end of the manager")
        assert second.process.returncode == 0
        assert floor.workers() == []
    finally:
        for run in filter(None, (first, second)):
            run.process.kill()
            run.process.wait()


def operate(url: str) -> None:
    """Ask and tell a manager what operators do."""
    [status] = as_json("pool", "status", "--manager", url)
    assert (status["pool"], status["state"]) == ("core", "active")
    assert "1 active, 0 unbound, 1 running" in requite("pool", "status", "--manager", url)[1]
    [group] = as_json("pool", "ls", "--manager", url)
    assert (group["key"], group["expected"], group["workers"]) == ("42", "active", 1)
    assert "1 worker" in requite("pool", "ls", "--manager", url)[1]
    assert requite("pool", "scale", "42", "2", "--manager", url) == (0, "")
    assert requite("pool", "poison", "ls", "--manager", url) == (0, "")
    drained = requite("pool", "drain", "--worker", "nobody", "--manager", url)
    assert drained == (0, "draining worker nobody\n")
    assert requite("pool", "poison", "retry", "--all", "--manager", url) == (1, "retried 0\n")
    code, text = requite("pool", "scale", "42", "65", "--manager", url)
    assert (code, text) == (2, "requite: workers must be 1 to 64, the maximum of the driver\n")


# --- bad input ------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", r"the section [pool] with"),
        ("[pool]\nnmae = 'core'", "unknown setting 'nmae'"),
        ("[pool]\nname = 'Core'\n[driver]\nkind = 'noop'", "pool = 'Core'"),
        ("[pool]\nname = 'core'\n[driver]\nkind = 'cloud'", "kind = 'cloud'"),
        ("[pool]\nname = 'core'\n", "command is missing"),
        ("[pool", "pool.toml"),
    ],
)
def test_settings_that_cannot_work_are_named(tmp_path: Path, text: str, complaint: str) -> None:
    file = tmp_path / "pool.toml"
    file.write_text(text)
    code, said = requite("pool", "run", "--config", str(file))
    assert code == 2
    assert complaint in said
    assert "Traceback" not in said


def test_what_is_given_wrongly_is_named(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing.toml")
    code, said = requite("pool", "run", "--config", missing)
    assert (code, "missing.toml" in said) == (2, True)
    (tmp_path / "pool.toml").write_text("[pool]\nname = 'core'\n[driver]\nkind = 'noop'")
    code, said = requite("pool", "run", "--config", str(tmp_path / "pool.toml"), "--set", "x=1")
    assert (code, "SECTION.NAME=VALUE" in said) == (2, True)
    assert requite("pool", "status", "--manager", "http://127.0.0.1:1")[0] == 5
    assert requite("pool", "status", "--manager", "core")[0] == 2
    assert requite("pool", "drain")[0] == 2
    assert requite("pool", "drain", "42", "--worker", "w")[0] == 2


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    (tmp_path / "pool.toml").write_text("[pool]\nname = 'core'\n[driver]\nkind = 'noop'")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = f"http.port={taken.getsockname()[1]}"
        code, said = requite("pool", "run", "--config", str(tmp_path / "pool.toml"), "--set", port)
    assert code == 7
    assert "http.port: cannot listen at 127.0.0.1" in said


def test_a_worker_of_a_pool_is_told_what_it_lacks() -> None:
    code, said = requite("worker", "tests.pool.services:who", "--pool")
    assert code == 2
    assert "lacks WORKER_AMQP_URL, WORKER_POOL, WORKER_KEY, WORKER_ID" in said
