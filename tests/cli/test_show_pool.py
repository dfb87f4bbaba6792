"""The demo of a pool: its requests, its processes, and a complete run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from contextlib import AsyncExitStack, ExitStack, suppress
from pathlib import Path
from types import SimpleNamespace

import airportsdata
import pytest
from tests.cli.command import COMMAND, ENVIRONMENT, Ended, requite
from tests.support.live import eventually

from requite.cli.show import pool_faults, run
from requite.cli.show.countries import Countries
from requite.cli.show.demos import DEMOS
from requite.cli.show.direct import direct_answers
from requite.cli.show.groups import Groups
from requite.cli.show.options import Scale
from requite.cli.show.pool import MANAGER, Server
from requite.cli.show.replies import Replies
from requite.examples import table
from requite.pool.drivers.records import Record, Records
from requite.request import Reply
from requite.testing import lifetime
from requite.testing.processes import State
from requite.testing.rabbitmq import SERVER_VARIABLE, unavailable
from requite.typed.envelope import unwrap_request

AIRPORTS = airportsdata.load()


# --- requests -------------------------------------------------------------------------------------
def test_countries_are_large_ones_and_one_with_a_quiet_period():
    countries = Countries(AIRPORTS, 4)
    assert countries.keys == ["BR", "AU", "CA", "IS"]
    sizes = Counter(row["country"] for row in AIRPORTS.values())
    assert countries.airports == sum(sizes[country] for country in countries.keys)


@pytest.mark.parametrize("requests", [1, 2, 10, 60, 1000, 5686, 20_000])
def test_one_country_has_a_quiet_period(requests):
    countries = Countries(AIRPORTS, 3)
    quiet = range(requests // 10, requests // 2)
    asked = [countries.country(code) for code in countries.codes(requests, quiet)]
    assert len(asked) == requests
    assert set(asked) <= set(countries.keys)
    assert asked[0] == "IS"
    asked_at = [at for at, country in enumerate(asked) if country == "IS" and at]
    assert not [at for at in asked_at if at in quiet]
    assert requests < 4 or quiet.stop in asked_at


def test_every_airport_of_the_busy_countries_is_requested():
    countries = Countries(AIRPORTS, 3)
    asked = set(countries.codes(2 * countries.airports, range(1, 2)))
    assert {c for c, row in AIRPORTS.items() if row["country"] in countries.busy} <= asked


def test_rabbitmq_is_killed_right_after_all_queues_are_written():
    kinds = [fault.actions for fault in DEMOS["pool"].faults]
    assert (pool_faults.await_queues, pool_faults.kill_rabbitmq) in kinds


def test_service_and_direct_computation_agree_within_a_country():
    home = table.Airports(table.within("IS", AIRPORTS))
    for code, expected in direct_answers(5, ["BIRK", "BIKF", "BIAR"], "IS").items():
        said = json.loads(home.answer(f"{code} 5 x".encode()))["nearest"]
        assert tuple((row["metres"], row["icao"]) for row in said) == expected
        assert {row["country"] for row in said} == {"IS"}


def test_a_worker_with_an_unknown_country_is_refused():
    ended = requite(
        "worker",
        "requite.examples.countries:airports",
        "--connect=mdp://127.0.0.1:1",
        env={"WORKER_KEY": "XX"},
    )
    assert ended.code == 2
    assert "'XX' is not the code of a country with airports" in ended.err


def test_manager_kills_are_recorded_only_with_a_manager():
    arguments = {"took_s": 1.0, "retries": 0, "kills": (0, 0)}
    assert "manager_kills" not in Replies([]).judge({}, **arguments).record()
    record = Replies([]).judge({}, **arguments, manager_kills=2).record()
    assert (record["manager_kills"], list(record)[6:9]) == (
        2, ["worker_kills", "broker_kills", "manager_kills"]
    )  # fmt: skip


# --- processes ------------------------------------------------------------------------------------
def test_the_state_of_a_group_follows_its_workers(tmp_path):
    groups = Groups(["BR", "IS"], tmp_path, "pool.default")
    group, other = groups.all
    groups.refresh()
    assert (group.state, group.pid) == (State.ABSENT, 0)
    records = Records(tmp_path / "pool.default")
    with records.entered(Record("one", "BR", "")) as file:
        groups.refresh()
        assert (group.state, group.pid) == (State.STARTING, 0)
        child = subprocess.Popen(
            ["/bin/sh", "-c", 'echo $$ >>"$0"; exec sleep 60', str(records.path("one"))],
            pass_fds=(file,),
            start_new_session=True,
        )
    try:
        while not group.pid:
            groups.refresh()
        assert (group.state, group.pid, other.pid) == (State.RUNNING, child.pid, 0)
        group.stop()
        groups.refresh()
        assert group.state is State.STOPPED
        group.resume()
        group.kill()
        assert child.wait() == -signal.SIGKILL
        groups.refresh()
        assert (group.state, group.pid) == (State.KILLED, 0)
    finally:
        child.kill()
        child.wait()


def test_a_process_exits_when_its_lock_is_released(tmp_path):
    file = tmp_path / "lock"
    held = ExitStack()
    held.enter_context(lifetime.lock(file))
    # Unbuffered, so that `http.server` prints its first line at once.
    command = [
        sys.executable,
        "-u",
        "-m",
        lifetime.__name__,
        "--lock",
        str(file),
        "-m",
        "http.server",
        "0",
    ]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child,
        held,  # on any failure, the child exits before it is awaited
    ):
        assert child.stdout is not None
        child.stdout.readline()
        assert child.poll() is None
    assert child.returncode == 1


async def test_the_screen_shows_the_running_manager(monkeypatch):
    def new_manager(name, _command):
        return SimpleNamespace(
            name=name, state=State.KILLED, wait_for=lambda *_: None, kill=lambda: None
        )

    monkeypatch.setattr(run, "Child", new_manager)
    monkeypatch.setattr(Server, "start", lambda _server: None)
    demo = DEMOS["pool"]
    with demo.run(demo, Scale(workers=3), None) as pool:
        async with AsyncExitStack() as stack:
            await pool.start(stack)
        names = ["RabbitMQ", "manager", "workers of BR", "workers of AU", "workers of IS"]
        assert [member.name for member in pool.members] == names
        former = pool.members[1]
        await pool.restart(MANAGER)
        assert [member.name for member in pool.members] == names
        assert pool.members[1] is pool.children[MANAGER] is not former


# --- RabbitMQ -------------------------------------------------------------------------------------
def test_without_rabbitmq_the_error_says_how_to_install_it(tmp_path):
    """A `sitecustomize` module hides all programs, as if RabbitMQ was not installed."""
    hidden = tmp_path / "sitecustomize.py"
    hidden.write_text("import shutil\nshutil.which = lambda name, **_: None\n")
    ended = requite("demo", "--pattern", "pool", "--no-audit", env={"PYTHONPATH": str(tmp_path)})
    assert (ended.code, ended.out) == (2, "")
    assert "apt-get install rabbitmq-server" in ended.err
    assert "REQUITE_RABBITMQ_SERVER" in ended.err
    assert ended.err.count("\n") == 1


def test_the_variable_names_the_rabbitmq_to_use(tmp_path, monkeypatch):
    from requite.testing import rabbitmq

    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("rabbitmq-server", "rabbitmqctl", "epmd"):
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    monkeypatch.setattr(rabbitmq, "_BEFORE", str(tmp_path))
    monkeypatch.setattr(rabbitmq, "_AFTER", "")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv(rabbitmq.SERVER_VARIABLE, raising=False)
    assert "cannot find rabbitmq-server" in rabbitmq.unavailable()
    monkeypatch.setenv(rabbitmq.SERVER_VARIABLE, str(folder / "rabbitmq-server"))
    assert rabbitmq.unavailable() is None


def test_the_groups_serve_a_typed_service():
    """The module of the service is loaded as in a worker of Iceland."""
    script = (
        "from requite.examples import countries; print(countries.airports.describe()['prefix'])"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True, text=True, env=os.environ | {"WORKER_KEY": "IS"}, check=True,
    )  # fmt: skip
    assert loaded.stdout == "airports\n"
    demo = DEMOS["pool"]
    with demo.run(demo, Scale(workers=3), None) as pool:
        name, question = unwrap_request(pool.body(0))
        pool.replies.add(Reply([b'{"airport":"BIRK","reference":"0","nearest":[]}']))
        verdict = pool.replies.judge(
            dict.fromkeys(pool.replies.airports, ()), took_s=1.0, retries=0, kills=(0, 0)
        )
    assert (name, json.loads(question)["code"]) == ("airports.nearest", pool.replies.airports[0])
    assert (verdict.correct, verdict.answered) == (1, 1)


# --- a complete run -------------------------------------------------------------------------------
@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(unavailable() is not None, reason="no RabbitMQ here: sudo scripts/setup test")
def test_a_run_loses_no_request_and_leaves_no_process(tmp_path):
    arguments = (
        "demo", "--pattern=pool", "--no-audit", "--json", "--requests=120", "--workers=2",
        "--worker-kills=1", "--broker-kills=1", "--stops=0",
    )  # fmt: skip
    where_rabbitmq_is = {n: v for n, v in os.environ.items() if n == SERVER_VARIABLE}
    ended = Ended(
        subprocess.run(
            [*COMMAND, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=280,
            env=ENVIRONMENT | {"TMPDIR": str(tmp_path)} | where_rabbitmq_is,
            check=False,
        )
    )
    assert ended.code == 0, ended.err
    assert ended.record.items() >= {
        "requests": 120, "answered": 120, "correct": 120, "lost": 0, "duplicated": 0,
        "worker_kills": 1, "broker_kills": 1, "manager_kills": 1, "audit": None,
    }.items()  # fmt: skip
    assert "no requests for IS for " in ended.err
    assert ": its worker was stopped, its queue deleted" in ended.err
    assert "IS started again by a request" in ended.err
    assert list(tmp_path.iterdir()) == []
    eventually(lambda: not processes_in(tmp_path), "the end of all processes")


def processes_in(folder: Path) -> list[str]:
    """Return the processes that have the folder in an argument or a variable."""
    name = str(folder).encode()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has exited, or belongs to another user
            text = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
            if name in text and process.name != str(os.getpid()):
                found.append(text.decode(errors="replace"))
    return found
