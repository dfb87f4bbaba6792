"""`requite queue`: its addresses, its journal, and refused options."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from tests.cli.command import requite, running

from requite.cli.exit_codes import ExitCode
from requite.journal.folder import find_logs
from requite.journal.reader import events

pytestmark = pytest.mark.e2e

ANY = ("--front", "tcp://127.0.0.1:0", "--back", "tcp://127.0.0.1:0")


def test_it_prints_its_addresses_and_dispatches_requests() -> None:
    with running("queue", *ANY, "--protocol", "simple") as queue:
        front = queue.line().removeprefix("listening on ").removesuffix(" for clients")
        back = queue.line().removeprefix("listening on ").removesuffix(" for workers")
        assert front.startswith("pirate://127.0.0.1:")
        assert back.endswith("?protocol=simple")
        with running("worker", "requite.examples:echo", "--connect", back) as worker:
            assert worker.line() == f"serving echo for {back}"
            assert requite("call", front, "hello").stdout == b"hello"
            queue.send(signal.SIGTERM)
            assert queue.end() == (ExitCode.OK, "", "")


def test_addresses_of_unix_sockets_may_omit_the_pirate_scheme(tmp_path: Path) -> None:
    front, back = f"ipc://{tmp_path}/front", f"pirate+ipc://{tmp_path}/back"
    with running("queue", "--front", front, "--back", back) as queue:
        assert queue.line() == f"listening on pirate+{front} for clients"
        assert queue.line() == f"listening on {back}?protocol=paranoid for workers"
        with running("worker", "requite.examples:echo", "--connect", back) as worker:
            worker.line()
            assert requite("call", f"pirate+{front}", "hello").stdout == b"hello"


def test_it_writes_a_journal(tmp_path: Path) -> None:
    with running("queue", *ANY, "--journal", str(tmp_path), "--protocol", "simple") as queue:
        front, back = (queue.line().split()[2] for _ in range(2))
        with running("worker", "requite.examples:echo", "--connect", back) as worker:
            worker.line()
            assert requite("call", front, "hello").stdout == b"hello"
        queue.send(signal.SIGTERM)
        queue.end()
    [log] = find_logs(tmp_path)
    assert log.log.startswith("broker-")
    kinds = [each.kind for each in events(tmp_path)]
    assert [kind for kind in kinds if kind in ("accepted", "dispatched", "answered")] == [
        "accepted",
        "dispatched",
        "answered",
    ]
    assert {"worker_joined", "worker_lost", "closed"} <= set(kinds)


def test_a_given_port_is_reused_after_a_restart_and_exclusive() -> None:
    with running("queue", *ANY) as queue:
        places = [queue.line().split()[2] for _ in range(2)]
        queue.send(signal.SIGKILL)
        queue.end()
    front, back = (url.partition("?")[0].replace("pirate:", "tcp:") for url in places)
    with running("queue", "--front", front, "--back", back) as queue:
        assert [queue.line().split()[2] for _ in range(2)] == places
        ended = requite("queue", "--front", front, "--back", "tcp://127.0.0.1:0")
        assert ended.code == ExitCode.CANNOT_LISTEN
        assert front in ended.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--protocol", "simple", "--liveness", "3"), "no heartbeats"),
        (("--front", "sp+tcp://127.0.0.1:0"), "scheme"),
        (("--back", "pirate://127.0.0.1:0?protocol=simple"), "for workers that connect"),
        (("--journal-retain", "1d"), "requires --journal DIR"),
    ],
)
def test_invalid_arguments_are_refused(arguments: tuple[str, ...], message: str) -> None:
    ended = requite("queue", *arguments)
    assert (ended.code, ended.out) == (ExitCode.USAGE, "")
    assert message in ended.err


def test_a_lazy_pirate_client_gets_a_reply_or_an_error() -> None:
    bind = ("--bind", "pirate://127.0.0.1:0")
    with running("worker", "requite.examples:slow", *bind) as server:
        url = server.line().removeprefix("serving slow at ")
        assert requite("call", url, "0.01").stdout == b"0.01"
        ended = requite("call", url, "30", "--timeout", "1.5", "--json")
        assert ended.code == ExitCode.TIMEOUT
        assert (ended.record["status"], ended.record["may_have_executed"]) == ("TIMEOUT", True)
        assert requite("services", url).code == ExitCode.USAGE
        ended = requite("call", url, "x", "--stream")
        assert ended.code == ExitCode.USAGE
        assert "no partial replies" in ended.err
