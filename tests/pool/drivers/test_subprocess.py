"""The driver of processes: the whole suite with real ones, and what only processes do."""

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

# A worker in the shell, since thirty Pythons would take their time: says who it is, and waits.
SCRIPT = 'env -0 >"$FOLDER/$WORKER_ID.tmp" && mv "$FOLDER/$WORKER_ID.tmp" "$FOLDER/$WORKER_ID"\n'
PATIENT = SCRIPT + "exec sleep 600"
# Ends 0.2 s after it was told to, like a worker that finishes a request.
DRAINED = 'trap "sleep 0.2; : >\\"$FOLDER/drained\\"; exit 0" TERM\n'
DRAINING = "sleep 600 &\n" + DRAINED + SCRIPT + "wait"
STUBBORN = 'trap "" TERM\n' + SCRIPT + "while :; do sleep 0.1; done"


class Processes:
    """This machine, and a folder into which workers write their variables."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.told = folder / "told"
        self.told.mkdir()
        self.drivers: list[SubprocessDriver] = []

    def settings(self, script: str = PATIENT) -> SubprocessSettings:
        """Return the settings of workers that run a script."""
        return SubprocessSettings(
            ("/bin/sh", "-c", script),
            state_dir=str(self.folder / "state"),
            env=(f"FOLDER={self.told}",),
        )

    def driver(self, label: Label = CORE) -> SubprocessDriver:
        """Make a driver."""
        return self.make(self.settings(), label)

    def make(self, settings: SubprocessSettings, label: Label = CORE) -> SubprocessDriver:
        """Make a driver with settings of one's own."""
        driver = SubprocessDriver(settings, label, environment_of(label))
        self.drivers.append(driver)
        return driver

    def living(self, label: Label = CORE) -> list[Record]:
        """Return the processes that run."""
        return Records(self.folder / "state" / label.prefix).living()

    async def environments(self, label: Label = CORE) -> list[Mapping[str, str]]:
        """Return what the workers wrote."""
        written = (self.told / record.worker_id for record in self.living(label))
        return [_parse(path.read_bytes()) for path in written if path.exists()]

    async def kill(self, key: str) -> None:
        """Kill the processes of a key, which have said who they are."""
        await until_told(self)
        for record in self.living():
            if record.key == key and record.pid:
                os.kill(record.pid, signal.SIGKILL)

    async def clear(self) -> None:
        """End everything that still runs."""
        for folder in (self.folder / "state").glob("*/"):
            await until(lambda f=folder: _killed(f), "the end of all workers")
        for driver in self.drivers:
            await driver.close()


async def _killed(folder: Path) -> bool:
    """Kill the workers whose process ids are known by now; tell whether there was none."""
    living = Records(folder).living()
    for pid in filter(None, (record.pid for record in living)):
        with suppress(ProcessLookupError):  # it has just ended by itself
            os.killpg(pid, signal.SIGKILL)
    return not living


def _parse(text: bytes) -> dict[str, str]:
    pairs = (line.decode().split("=", 1) for line in text.split(b"\0") if line)
    return dict(pairs)


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[Processes]:
    house = Processes(tmp_path)
    try:
        yield house
    finally:
        await house.clear()


class TestSubprocess(LastingConformance):
    """The whole suite."""


async def until_told(house: Processes, count: int = 1) -> None:
    """Wait until so many workers have said who they are."""

    async def told() -> bool:
        return len(await house.environments()) == count

    await until(told, f"the variables of {count} workers")


async def test_stop_waits_until_the_worker_has_drained(house: Processes) -> None:
    driver = house.make(house.settings(DRAINING))
    await driver.start("42", "1")
    await until_told(house)
    await driver.stop("42")
    assert (house.told / "drained").exists()
    assert house.living() == []


async def test_a_group_that_drains_is_listed_until_it_has_ended(house: Processes) -> None:
    driver = house.make(replace(house.settings(STUBBORN), stop_timeout_s=1.5))
    await driver.start("42", "1")
    await until_told(house)
    stopping = asyncio.create_task(driver.stop("42"))
    await listed(driver, {"42": RunningGroup("1", 1, stopping=True)})
    await stopping
    assert dict(await driver.list()) == {}


async def test_a_start_during_a_stop_waits_for_its_end(house: Processes) -> None:
    driver = house.make(house.settings(DRAINING))
    await driver.start("42", "1")
    await until_told(house)
    first = house.living()
    await asyncio.gather(driver.stop("42"), driver.start("42"))
    second = house.living()
    assert len(second) == 1
    assert second[0].worker_id != first[0].worker_id


async def test_who_does_not_end_is_killed(
    house: Processes, caplog: pytest.LogCaptureFixture
) -> None:
    driver = house.make(replace(house.settings(STUBBORN), stop_timeout_s=0.1))
    await driver.start("42", "1")
    await until_told(house)
    await driver.stop("42")
    assert house.living() == []
    assert "did not stop in time: killed" in caplog.text


@pytest.mark.parametrize("start", ["", "setsid "])
async def test_a_worker_that_dies_has_ended_though_what_it_started_goes_on(
    house: Processes, start: str
) -> None:
    left = house.folder / "left"
    child = f"{start}sh -c 'echo $$ >{left}; exec sleep 600' &\nuntil [ -s {left} ]; do :; done\n"
    script = f"if ! [ -s {left} ]; then {child} fi\n"  # the first worker alone has one
    driver = house.make(house.settings(script + PATIENT))
    await driver.start("42", "1")
    await until_told(house)
    await house.kill("42")
    try:
        await listed(driver, {})
        await driver.start("42", "1")
        await listed(driver, {"42": RunningGroup("1", 1)})
    finally:
        with suppress(ProcessLookupError):
            os.kill(int(left.read_text()), signal.SIGKILL)


async def test_a_worker_is_stopped_though_what_it_started_goes_on(
    house: Processes, caplog: pytest.LogCaptureFixture
) -> None:
    left = house.folder / "left"
    script = f"setsid sh -c 'echo $$ >{left}; exec sleep 600' &\nuntil [ -s {left} ]; do :; done\n"
    driver = house.make(house.settings(script + PATIENT))
    await driver.start("42", "1")
    await until_told(house)
    await driver.stop("42")
    os.kill(int(left.read_text()), signal.SIGKILL)  # it has left our session, and is not ours
    assert house.living() == []
    assert [each for each in caplog.records if each.name == "requite.pool"] == []


async def test_a_worker_that_fails_is_told_of(
    house: Processes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "requite.pool")
    driver = house.make(house.settings("exit 3"))
    await driver.start("42", "1")

    async def told() -> bool:
        return not await driver.list() and "ended: 3" in caplog.text

    await until(told, "a log line with the exit code")


async def test_a_worker_that_was_told_to_end_is_no_cause_for_alarm(
    house: Processes, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "requite.pool")
    driver = house.driver()
    await driver.start("42", "1")
    await until_told(house)
    with monkeypatch.context() as patched:  # its file is free a moment before it can be reaped
        patched.setattr(subprocesses, "_exit_code", lambda _pid: None)
        await driver.stop("42")

    async def ended() -> bool:
        return not await driver.list() and "ended: -15" in caplog.text

    await until(ended, "a log line with the exit code")
    told = {record.levelno for record in caplog.records if record.name == "requite.pool"}
    assert told == {logging.INFO}


async def test_a_program_that_is_not_there_is_named(house: Processes) -> None:
    driver = house.make(replace(house.settings(), command=("no-such-program",)))
    with pytest.raises(DriverError, match=r"driver\.command: .* 'no-such-program'"):
        await driver.start("42", "1")
    assert dict(await driver.list()) == {}


async def test_a_folder_that_is_not_there_is_named(house: Processes) -> None:
    driver = house.make(replace(house.settings(), directory=str(house.folder / "nowhere")))
    with pytest.raises(DriverError, match="nowhere"):
        await driver.start("42", "1")
    await listed(driver, {})


async def test_a_state_folder_that_cannot_be_is_named(house: Processes) -> None:
    (house.folder / "file").write_text("")
    driver = SubprocessDriver(
        replace(house.settings(), state_dir=str(house.folder / "file")), CORE, environment_of(CORE)
    )
    with pytest.raises(DriverError, match=r"driver\.state_dir"):
        await driver.list()


async def test_what_workers_print_is_kept(house: Processes) -> None:
    folder = house.folder / "log"
    settings = replace(house.settings("echo to-out; echo to-err >&2"), log_dir=str(folder))
    await house.make(settings).start("42")

    async def printed() -> bool:
        return "".join(path.read_text() for path in folder.glob("*.log")) == ("to-out\nto-err\n")

    await until(printed, "the worker's output")


async def test_workers_get_no_secrets_of_the_manager(
    house: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = {
        "LC_ALL": "C.UTF-8",
        "PYTHONPATH": "/lib",
        "REQUITE_JOURNAL": "journal",
        "TMPDIR": str(house.folder),
        "VIRTUAL_ENV": "/venv",
        "DATABASE_URL": "postgres://me:secret@db",
        "SHOP_A": "1",
        "SHOP_B": "2",
    }
    ours = {
        "AWS_SECRET_ACCESS_KEY": "secret",
        "MY_DATABASE_URL": "secret",
        "REQUITE_POOL__RABBITMQ__MANAGEMENT_URL": "http://admin:secret@rabbit:15672",
        "shop_c": "3",
    }
    for name, value in {**theirs, **ours}.items():
        monkeypatch.setenv(name, value)
    settings = replace(house.settings(), pass_environment=("DATABASE_URL", "SHOP_*", "NOT_SET"))
    await house.make(settings).start("42")
    await until_told(house)
    [seen] = await house.environments()
    assert {name: seen.get(name) for name in (*theirs, *ours)} == {**theirs, **dict.fromkeys(ours)}
    assert seen["PATH"] == os.environ["PATH"]
    assert (seen["WORKER_KEY"], seen["FOLDER"]) == ("42", str(house.told))


async def test_a_manager_may_pass_its_whole_environment_on(
    house: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANYTHING", "goes")
    await house.make(replace(house.settings(), pass_environment=("*",))).start("42")
    await until_told(house)
    [seen] = await house.environments()
    assert {**os.environ, **seen} == seen


def test_a_value_among_the_names_of_variables_is_refused_and_not_shown() -> None:
    with pytest.raises(ConfigurationError, match="item 2 has a value; write it to `env`") as caught:
        SubprocessSettings(("sleep",), pass_environment=("A", "B=secret"))
    assert "secret" not in str(caught.value)


async def test_output_of_workers_is_closed_to_other_users(house: Processes) -> None:
    folder = house.folder / "var" / "log"
    before = os.umask(0)
    try:
        await house.make(replace(house.settings(), log_dir=str(folder))).start("42")
    finally:
        os.umask(before)
    [file] = folder.iterdir()
    paths = [file, folder, folder.parent, house.folder / "state"]
    assert [path.stat().st_mode & 0o777 for path in paths] == [0o600, 0o700, 0o700, 0o700]


def test_a_command_is_needed() -> None:
    with pytest.raises(ConfigurationError, match=r"driver\.command"):
        SubprocessSettings(())


async def test_a_foreign_process_with_the_same_id_is_left_alone(house: Processes) -> None:
    driver = house.driver()
    await driver.start("42", "1")
    [record] = house.living()
    await house.kill("42")
    await listed(driver, {})
    # The file of a worker that is dead, whose process id somebody else has by now.
    other = await asyncio.create_subprocess_exec("sleep", "600")
    try:
        text = json.dumps({"worker_id": record.worker_id, "key": "42", "version": "1"})
        path = house.folder / "state" / CORE.prefix / f"{record.worker_id}.worker"
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


async def test_workers_of_a_killed_manager_are_found_and_stopped(house: Processes) -> None:
    state = house.folder / "state"
    killed = await asyncio.create_subprocess_exec(sys.executable, "-c", KILLED, str(state))
    assert await killed.wait() == -signal.SIGKILL
    heir = house.driver()
    await listed(heir, {"42": RunningGroup("1", 1)})
    await heir.stop("42")
    assert dict(await heir.list()) == {}


@pytest.mark.parametrize("text", ["", "NAME", "=value", "NAME=a\0b"])
def test_variables_have_names_and_values(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"driver\.env"):
        SubprocessSettings(("true",), env=(text,))


def test_state_has_a_place_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert SubprocessSettings(("true",)).state_folder == Path("/state/requite/pool")
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", "/home/me")
    assert SubprocessSettings(("true",)).state_folder == Path("/home/me/.local/state/requite/pool")
