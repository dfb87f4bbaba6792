"""The subprocess driver passes the driver suite with real processes, and further tests."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from tests.pool.drivers.conformance import CORE, LastingConformance, listed, until
from tests.pool.drivers.environment import environment_of

from requite.errors import ConfigurationError
from requite.pool.drivers import subprocesses
from requite.pool.drivers.base import DriverError, Label
from requite.pool.drivers.records import Record, Records
from requite.pool.drivers.subprocesses import SubprocessDriver, SubprocessSettings
from requite.pool.inputs import RunningGroup

pytestmark = pytest.mark.e2e

# A worker as a shell script, which starts faster than Python: it writes its variables and waits.
SCRIPT = 'env -0 >"$FOLDER/$WORKER_ID.tmp" && mv "$FOLDER/$WORKER_ID.tmp" "$FOLDER/$WORKER_ID"\n'
WAITING = SCRIPT + "exec sleep 600"
# Exits 0.2 s after SIGTERM, like a worker that finishes a request.
DRAINED = 'trap "sleep 0.2; : >\\"$FOLDER/drained\\"; exit 0" TERM\n'
DRAINING = "sleep 600 &\n" + DRAINED + SCRIPT + "wait"
IGNORING_SIGTERM = 'trap "" TERM\n' + SCRIPT + "while :; do sleep 0.1; done"


class Processes:
    """Drivers on this machine, and a folder into which workers write their variables."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.variables = folder / "variables"
        self.variables.mkdir()
        self.drivers: list[SubprocessDriver] = []

    def settings(self, script: str = WAITING) -> SubprocessSettings:
        """Return the settings of workers that run a script."""
        return SubprocessSettings(
            ("/bin/sh", "-c", script),
            state_dir=str(self.folder / "state"),
            env=(f"FOLDER={self.variables}",),
        )

    def driver(self, label: Label = CORE) -> SubprocessDriver:
        """Return a driver with the default settings."""
        return self.make(self.settings(), label)

    def make(self, settings: SubprocessSettings, label: Label = CORE) -> SubprocessDriver:
        """Return a driver with the given settings."""
        driver = SubprocessDriver(settings, label, environment_of(label))
        self.drivers.append(driver)
        return driver

    def living(self, label: Label = CORE) -> list[Record]:
        """Return the records of the running processes."""
        return Records(self.folder / "state" / label.prefix).living()

    async def environments(self, label: Label = CORE) -> list[Mapping[str, str]]:
        """Return the variables that running workers have written."""
        written = (self.variables / record.worker_id for record in self.living(label))
        return [_parse(path.read_bytes()) for path in written if path.exists()]

    async def kill(self, key: str) -> None:
        """Kill the processes of a key once a worker has written its variables."""
        await until_running(self)
        for record in self.living():
            if record.key == key and record.pid:
                os.kill(record.pid, signal.SIGKILL)

    async def clear(self) -> None:
        """Kill all remaining workers, and close the drivers."""
        for folder in (self.folder / "state").glob("*/"):
            await until(lambda f=folder: _killed(f), "the end of all workers")
        for driver in self.drivers:
            await driver.close()


async def _killed(folder: Path) -> bool:
    """Kill the running workers with known process ids; return whether no worker was running."""
    living = Records(folder).living()
    for pid in filter(None, (record.pid for record in living)):
        with suppress(ProcessLookupError):  # it has just exited
            os.killpg(pid, signal.SIGKILL)
    return not living


def _parse(text: bytes) -> dict[str, str]:
    pairs = (line.decode().split("=", 1) for line in text.split(b"\0") if line)
    return dict(pairs)


@pytest.fixture
async def backend(tmp_path: Path) -> AsyncIterator[Processes]:
    backend = Processes(tmp_path)
    try:
        yield backend
    finally:
        await backend.clear()


class TestSubprocess(LastingConformance):
    """The driver suite for processes."""


async def until_running(backend: Processes, count: int = 1) -> None:
    """Wait until `count` workers have written their variables."""

    async def have_written() -> bool:
        return len(await backend.environments()) == count

    await until(have_written, f"the variables of {count} workers")


async def test_stop_waits_until_the_worker_has_drained(backend: Processes) -> None:
    driver = backend.make(backend.settings(DRAINING))
    await driver.start("42", "1")
    await until_running(backend)
    await driver.stop("42")
    assert (backend.variables / "drained").exists()
    assert backend.living() == []


async def test_a_stopping_group_is_listed_until_it_has_ended(backend: Processes) -> None:
    driver = backend.make(replace(backend.settings(IGNORING_SIGTERM), stop_timeout_s=1.5))
    await driver.start("42", "1")
    await until_running(backend)
    stopping = asyncio.create_task(driver.stop("42"))
    await listed(driver, {"42": RunningGroup("1", 1, stopping=True)})
    await stopping
    assert dict(await driver.list()) == {}


async def test_a_start_during_a_stop_waits_for_its_end(backend: Processes) -> None:
    driver = backend.make(backend.settings(DRAINING))
    await driver.start("42", "1")
    await until_running(backend)
    first = backend.living()
    await asyncio.gather(driver.stop("42"), driver.start("42"))
    second = backend.living()
    assert len(second) == 1
    assert second[0].worker_id != first[0].worker_id


async def test_a_worker_that_ignores_sigterm_is_killed(
    backend: Processes, caplog: pytest.LogCaptureFixture
) -> None:
    driver = backend.make(replace(backend.settings(IGNORING_SIGTERM), stop_timeout_s=0.1))
    await driver.start("42", "1")
    await until_running(backend)
    await driver.stop("42")
    assert backend.living() == []
    assert "did not stop in time: killed" in caplog.text


@pytest.mark.parametrize("start", ["", "setsid "])
async def test_a_dead_worker_is_not_listed_while_its_child_runs(
    backend: Processes, start: str
) -> None:
    left = backend.folder / "left"
    child = f"{start}sh -c 'echo $$ >{left}; exec sleep 600' &\nuntil [ -s {left} ]; do :; done\n"
    script = f"if ! [ -s {left} ]; then {child} fi\n"  # only the first worker starts a child
    driver = backend.make(backend.settings(script + WAITING))
    await driver.start("42", "1")
    await until_running(backend)
    await backend.kill("42")
    try:
        await listed(driver, {})
        await driver.start("42", "1")
        await listed(driver, {"42": RunningGroup("1", 1)})
    finally:
        with suppress(ProcessLookupError):
            os.kill(int(left.read_text()), signal.SIGKILL)


async def test_a_worker_is_stopped_while_its_child_runs(
    backend: Processes, caplog: pytest.LogCaptureFixture
) -> None:
    left = backend.folder / "left"
    script = f"setsid sh -c 'echo $$ >{left}; exec sleep 600' &\nuntil [ -s {left} ]; do :; done\n"
    driver = backend.make(backend.settings(script + WAITING))
    await driver.start("42", "1")
    await until_running(backend)
    await driver.stop("42")
    # The driver does not stop the child, which is in another session.
    os.kill(int(left.read_text()), signal.SIGKILL)
    assert backend.living() == []
    assert [each for each in caplog.records if each.name == "requite.pool"] == []


async def test_the_exit_code_of_a_failed_worker_is_logged(
    backend: Processes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "requite.pool")
    driver = backend.make(backend.settings("exit 3"))
    await driver.start("42", "1")

    async def is_logged() -> bool:
        return not await driver.list() and "ended: 3" in caplog.text

    await until(is_logged, "a log line with the exit code")


async def test_the_exit_of_a_stopped_worker_is_logged_at_info(
    backend: Processes, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "requite.pool")
    driver = backend.driver()
    await driver.start("42", "1")
    await until_running(backend)
    with monkeypatch.context() as patched:  # its lock is released a moment before it can be reaped
        patched.setattr(subprocesses, "_exit_code", lambda _pid: None)
        await driver.stop("42")

    async def ended() -> bool:
        return not await driver.list() and "ended: -15" in caplog.text

    await until(ended, "a log line with the exit code")
    levels = {record.levelno for record in caplog.records if record.name == "requite.pool"}
    assert levels == {logging.INFO}


async def test_a_missing_program_is_named(backend: Processes) -> None:
    driver = backend.make(replace(backend.settings(), command=("no-such-program",)))
    with pytest.raises(DriverError, match=r"driver\.command: .* 'no-such-program'"):
        await driver.start("42", "1")
    assert dict(await driver.list()) == {}


async def test_a_missing_folder_is_named(backend: Processes) -> None:
    driver = backend.make(replace(backend.settings(), directory=str(backend.folder / "nowhere")))
    with pytest.raises(DriverError, match="nowhere"):
        await driver.start("42", "1")
    await listed(driver, {})


async def test_a_state_folder_that_cannot_be_created_is_named(backend: Processes) -> None:
    (backend.folder / "file").write_text("")
    driver = SubprocessDriver(
        replace(backend.settings(), state_dir=str(backend.folder / "file")),
        CORE,
        environment_of(CORE),
    )
    with pytest.raises(DriverError, match=r"driver\.state_dir"):
        await driver.list()


async def test_the_output_of_workers_is_written_to_log_dir(backend: Processes) -> None:
    folder = backend.folder / "log"
    settings = replace(backend.settings("echo to-out; echo to-err >&2"), log_dir=str(folder))
    await backend.make(settings).start("42")

    async def printed() -> bool:
        return "".join(path.read_text() for path in folder.glob("*.log")) == ("to-out\nto-err\n")

    await until(printed, "the worker's output")


async def test_workers_get_no_secrets_of_the_manager(
    backend: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = {
        "LC_ALL": "C.UTF-8",
        "PYTHONPATH": "/lib",
        "REQUITE_JOURNAL": "journal",
        "TMPDIR": str(backend.folder),
        "VIRTUAL_ENV": "/venv",
        "DATABASE_URL": "postgres://me:secret@db",
        "SHOP_A": "1",
        "SHOP_B": "2",
    }
    ours = {
        "AWS_SECRET_ACCESS_KEY": "secret",
        "MY_DATABASE_URL": "secret",
        "REQUITE_HTTP": ":9464",
        "REQUITE_POOL__RABBITMQ__MANAGEMENT_URL": "http://admin:secret@rabbit:15672",
        "shop_c": "3",
    }
    for name, value in {**theirs, **ours}.items():
        monkeypatch.setenv(name, value)
    settings = replace(backend.settings(), pass_environment=("DATABASE_URL", "SHOP_*", "NOT_SET"))
    await backend.make(settings).start("42")
    await until_running(backend)
    [seen] = await backend.environments()
    assert {name: seen.get(name) for name in (*theirs, *ours)} == {**theirs, **dict.fromkeys(ours)}
    assert seen["PATH"] == os.environ["PATH"]
    assert (seen["WORKER_KEY"], seen["FOLDER"]) == ("42", str(backend.variables))


async def test_a_manager_may_pass_its_whole_environment_on(
    backend: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANYTHING", "goes")
    monkeypatch.setenv("REQUITE_HTTP", ":0")
    await backend.make(replace(backend.settings(), pass_environment=("*",))).start("42")
    await until_running(backend)
    [seen] = await backend.environments()
    assert {**os.environ, **seen} == seen


def test_a_value_among_the_names_of_variables_is_refused_and_not_shown() -> None:
    with pytest.raises(ConfigurationError, match="item 2 has a value; write it to `env`") as caught:
        SubprocessSettings(("sleep",), pass_environment=("A", "B=secret"))
    assert "secret" not in str(caught.value)


async def test_output_of_workers_is_closed_to_other_users(backend: Processes) -> None:
    folder = backend.folder / "var" / "log"
    before = os.umask(0)
    try:
        await backend.make(replace(backend.settings(), log_dir=str(folder))).start("42")
    finally:
        os.umask(before)
    [file] = folder.iterdir()
    paths = [file, folder, folder.parent, backend.folder / "state"]
    assert [path.stat().st_mode & 0o777 for path in paths] == [0o600, 0o700, 0o700, 0o700]


def test_a_command_is_required() -> None:
    with pytest.raises(ConfigurationError, match=r"driver\.command"):
        SubprocessSettings(())


async def test_another_process_with_a_reused_id_is_not_stopped(backend: Processes) -> None:
    driver = backend.driver()
    await driver.start("42", "1")
    [record] = backend.living()
    await backend.kill("42")
    await listed(driver, {})
    # The record of a dead worker, with a process id that another process uses now.
    other = await asyncio.create_subprocess_exec("sleep", "600")
    try:
        text = json.dumps({"worker_id": record.worker_id, "key": "42", "version": "1"})
        path = backend.folder / "state" / CORE.prefix / f"{record.worker_id}.worker"
        path.write_text(f"{text}\n{other.pid}\n")
        assert dict(await driver.list()) == {}
        await driver.stop("42")
        assert other.returncode is None
        os.kill(other.pid, 0)
    finally:
        other.kill()
        await other.wait()


KILLED = """
import asyncio, os, signal, sys
from tests.pool.drivers.environment import environment_of
from tests.pool.drivers.conformance import CORE
from requite.pool.drivers.subprocesses import SubprocessDriver, SubprocessSettings

async def main():
    settings = SubprocessSettings(("sleep", "600"), state_dir=sys.argv[1])
    await SubprocessDriver(settings, CORE, environment_of(CORE)).start("42", "1")
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


async def test_workers_of_a_killed_manager_are_found_and_stopped(backend: Processes) -> None:
    state = backend.folder / "state"
    killed = await asyncio.create_subprocess_exec(sys.executable, "-c", KILLED, str(state))
    assert await killed.wait() == -signal.SIGKILL
    successor = backend.driver()
    await listed(successor, {"42": RunningGroup("1", 1)})
    await successor.stop("42")
    assert dict(await successor.list()) == {}


@pytest.mark.parametrize("text", ["", "NAME", "=value", "NAME=a\0b"])
def test_malformed_variables_are_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"driver\.env"):
        SubprocessSettings(("true",), env=(text,))


def test_the_default_state_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert SubprocessSettings(("true",)).state_folder == Path("/state/requite/pool")
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", "/home/me")
    assert SubprocessSettings(("true",)).state_folder == Path("/home/me/.local/state/requite/pool")
