"""SIGHUP: without a terminal it reloads, with one it drains as SIGTERM does. Real processes."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

import pytest
from tests.cli.command import (
    COMMAND,
    ENVIRONMENT,
    WAIT_S,
    Running,
    await_draining,
    await_running,
    requite,
    running,
    running_broker,
    running_worker,
    write_users,
)

from requite.cli.exit_codes import ExitCode

pytestmark = pytest.mark.e2e

ECHO = "requite.examples:echo"
ANY = "tcp://127.0.0.1:0"
Words: TypeAlias = Callable[[str, Path], tuple[str, ...]]


def pool_words(url: str, folder: Path) -> tuple[str, ...]:
    """Write the settings of a pool without groups; return the command of its manager."""
    file = folder / "pool.toml"
    state = json.dumps(str(folder / "state"))
    file.write_text(
        '[pool]\nname = "core"\n[http]\nport = 0\n[driver]\n'
        f"command = [{json.dumps(sys.executable)}]\nstate_dir = {state}\n"
    )
    return ("pool", "run", "--config", str(file), "--broker", url)


SERVERS: dict[str, Words] = {
    "broker": lambda _url, _folder: ("broker", "--bind", ANY),
    "worker": lambda url, _folder: ("worker", ECHO, "--connect", url),
    "device": lambda _url, _folder: (
        "device",
        "--front",
        f"sp+{ANY}",
        "--back",
        "sp+tcp://127.0.0.1:1",
    ),
    "queue": lambda _url, _folder: ("queue", "--front", ANY, "--back", ANY),
    "titanic": lambda url, folder: (
        "titanic",
        "serve",
        "--broker",
        url,
        "--dir",
        str(folder / "t"),
    ),
    "pool": pool_words,
}


@contextmanager
def in_terminal(*arguments: str) -> Iterator[tuple[Running, int]]:
    """Start the command with a terminal as its stdin; yield it and the terminal's other end."""
    ours, theirs = os.openpty()

    def take_terminal() -> None:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    process = subprocess.Popen(
        [*COMMAND, *arguments],
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
        preexec_fn=take_terminal,
    )
    os.close(theirs)
    try:
        yield Running(process), ours
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The URL of a broker."""
    with running_broker() as (_broker, url):
        yield url


@pytest.mark.parametrize("name", SERVERS)
def test_without_a_terminal_it_says_that_there_is_nothing_to_reload(
    name: str, url: str, tmp_path: Path
) -> None:
    with running(*SERVERS[name](url, tmp_path)) as server:
        server.line()
        for _ in range(2):
            server.send(signal.SIGHUP)
            assert "SIGHUP: nothing to reload" in server.error_line()
        server.send(signal.SIGTERM)
        assert server.end()[0] == ExitCode.OK


@pytest.mark.parametrize("name", SERVERS)
def test_it_drains_when_its_terminal_is_closed(name: str, url: str, tmp_path: Path) -> None:
    with in_terminal(*SERVERS[name](url, tmp_path)) as (server, terminal):
        server.line()
        os.close(terminal)
        code, _out, err = server.end()
    assert (code, "Traceback" in err) == (ExitCode.OK, False), err


def test_a_closed_terminal_costs_no_request_and_may_be_told_twice() -> None:
    """The kernel and the shell both send SIGHUP; the second one does not stop the drain."""
    with (
        in_terminal("broker", "--bind", ANY) as (broker, _terminal),
        running_worker(
            "requite.examples:slow",
            "--connect",
            url := broker.line().replace("listening on tcp", "mdp"),
        ),
        running("call", f"{url}/slow", "2", "--timeout", "60", "--once") as call,
    ):
        await_running(url, "slow")
        broker.send(signal.SIGHUP)
        await_draining(url)
        broker.send(signal.SIGHUP)
        assert call.end()[0] == ExitCode.OK
        assert broker.end()[0] == ExitCode.OK


def test_nohup_keeps_a_server_that_has_a_terminal() -> None:
    nohup = (
        "import os, signal, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN);"
        "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    )
    ours, theirs = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", nohup, *COMMAND[1:], "broker", "--bind", ANY],
        stdin=theirs,
        stdout=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip().replace("listening on tcp", "mdp")
        process.send_signal(signal.SIGHUP)
        assert requite("call", f"{url}/mmi.ping", "--timeout", "20").code == ExitCode.OK
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S) == ExitCode.OK
    finally:
        process.kill()
        process.communicate()
        os.close(ours)
        os.close(theirs)


def test_a_broker_reads_its_users_again(tmp_path: Path) -> None:
    users = write_users(tmp_path / "users", "ann:old\n")
    with running_broker("--credentials-file", str(users), "-v") as (broker, url):

        def admits(user: str) -> bool:
            place = url.replace("mdp://", f"mdp://{user}@")
            return requite("call", f"{place}/mmi.ping", "--timeout", "5").code == ExitCode.OK

        def reload(text: str, mode: int = 0o600) -> str:
            write_users(users, text).chmod(mode)
            broker.send(signal.SIGHUP)
            while "users" not in (line := broker.error_line()):
                pass
            return line

        assert (admits("ann:old"), admits("bob:new")) == (True, False)
        stays = running_worker(ECHO, "--connect", url.replace("mdp://", "mdp://ann:old@"))
        with stays:
            assert "read 1 user" in reload("bob:new\n")
            assert (admits("ann:old"), admits("bob:new")) == (False, True)
            place = url.replace("mdp://", "mdp://bob:new@")
            assert requite("call", f"{place}/echo", "x", "--timeout", "20").out == "x"
            told = reload("eve:evil\n", 0o644)
            assert "the users remain as they were" in told
            assert "chmod 600" in told
            assert "the users remain as they were" in reload("")
            assert "read 2 users" in reload("ann:older\nbob:new\n")
            assert (admits("eve:evil"), admits("bob:new")) == (False, True)
        broker.send(signal.SIGTERM)
        assert broker.end()[0] == ExitCode.OK


SCRIPT = """
import asyncio, logging, os, signal, sys
from requite import Broker
logging.basicConfig(level="INFO")
if sys.argv[1:]:
    # Not `print`: the signal may come within the `print` below, which cannot be entered twice.
    signal.signal(signal.SIGHUP, lambda *_: os.write(1, b"mine\\n"))
Broker("tcp://127.0.0.1:0").run(lambda: print("up", flush=True))
"""


@pytest.mark.parametrize("words", [(), ("own handler",)])
def test_a_program_that_embeds_a_server_goes_on(words: tuple[str, ...]) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    server = Running(process)
    try:
        assert server.line() == "up"
        server.send(signal.SIGHUP)
        if words:
            assert server.line() == "mine"
        else:
            assert "SIGHUP: nothing to reload" in server.error_line()
        server.send(signal.SIGTERM)
        assert server.end()[0] == 0
    finally:
        process.kill()
        process.communicate()


def test_a_program_that_embeds_a_server_drains_with_its_terminal() -> None:
    ours, theirs = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT], stdin=theirs, stdout=subprocess.PIPE, text=True
    )
    try:
        assert Running(process).line() == "up"
        process.send_signal(signal.SIGHUP)
        assert process.wait(WAIT_S) == 0
    finally:
        process.kill()
        process.communicate()
        os.close(ours)
        os.close(theirs)
