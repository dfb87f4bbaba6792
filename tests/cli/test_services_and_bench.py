"""`requite services` and `requite bench`: tables for people, objects for scripts."""

from __future__ import annotations

import io
import signal

import pytest
from rich.console import Console
from tests.cli.command import requite, running, running_broker

from requite.cli.exit_codes import ExitCode
from requite.cli.services import check, render
from requite.errors import RemoteViolation

pytestmark = pytest.mark.e2e

UNREACHABLE = "mdp://127.0.0.1:1"
UNHEARD = {
    "role": "backup",
    "state": "passive",
    "epoch": 1,
    "serves": False,
    "peer": "active",
    "peer_is_silent": True,
    "heard_s_ago": None,
}


def test_the_table_has_a_row_per_service(url):
    ended = requite("services", url)
    assert (ended.code, ended.err) == (0, "")
    rows = {line.split()[0]: line.split()[1:3] for line in ended.out.splitlines() if line.strip()}
    assert rows["service"] == ["workers", "idle"]
    assert {name: rows[name] for name in ("echo", "count", "fail", "slow")} == {
        "echo": ["1", "1"],
        "count": ["1", "1"],
        "fail": ["1", "1"],
        "slow": ["1", "1"],
    }


def test_the_workers_are_shown_on_request(url):
    assert "capacity" not in requite("services", url).out
    assert "capacity" in requite("services", url, "--workers").out


def test_a_broker_without_services_says_so():
    with running_broker() as (_broker, url):
        ended = requite("services", url)
    assert ended.code == 0
    assert "no services" in ended.out


@pytest.mark.parametrize(("unread", "is_shown"), [(0, False), (2, True)])
def test_clients_that_are_not_read_from_are_shown(unread, is_shown):
    report = {"clients": 3, "unread": unread, "pending": 9, "draining": False}
    shown = Console(file=io.StringIO(), width=120)
    shown.print(render(report | {"services": [], "workers": []}, with_workers=False))
    text = shown.file.getvalue()
    assert "9 requests pending" in text
    assert ("2 clients not read from, because of a limit" in text) is is_shown


def test_nothing_of_a_peer_is_printed_raw():
    evil = "[red]\x1b]0;PWNED\x07\x1b[2J\x9b2J\ud800\n"
    counts = ("workers", "waiting", "queued", "in_progress", "replied", "failed")
    rare = ("expired", "cancelled", "refused", "redelivered")
    row = dict.fromkeys(counts + rare, 0) | {"service": evil}
    worker = {"service": evil, "worker": evil, "dialect": evil}
    worker |= dict.fromkeys(("capacity", "holding", "served", "heartbeat_ms"), 1)
    pair = {"role": evil, "state": evil, "epoch": evil, "peer": evil, "peer_is_silent": False}
    report = {"clients": 3, "pending": 9, "draining": False, "pair": pair}
    shown = Console(file=io.StringIO(), width=1000)
    shown.print(render(report | {"services": [row], "workers": [worker]}, with_workers=True))
    text = shown.file.getvalue()
    assert text.count("[red]\\x1b]0;PWNED\\x07\\x1b[2J\\x9b2J\\ud800\\n") == 8
    assert all(line.isprintable() for line in text.splitlines())


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"clients": "3"}, "clients is not an integer"),
        ({"draining": None}, "draining is neither true nor false"),
        ({"unread": 1e300}, "unread is not an integer"),
        ({"pair": {}}, "it lacks 'peer'"),
        ({"pair": UNHEARD}, "heard_s_ago is not a number"),
        ({"services": {}}, "services is not an array"),
        ({"services": [{"service": 3}]}, "service is not a string"),
        ({"services": [{"service": "echo"}]}, "it lacks 'workers'"),
        ({"workers": [[]]}, "a worker is not an object"),
    ],
)
def test_an_answer_that_cannot_be_shown_is_an_error(changes, expected):
    report = {"clients": 3, "pending": 9, "draining": False, "services": [], "workers": []}
    check(report)
    with pytest.raises(RemoteViolation, match=expected):
        check(report | changes)


def test_replies_are_counted(url):
    def echo():
        (row,) = [
            each
            for each in requite("services", url, "--json").record["services"]
            if each["service"] == "echo"
        ]
        return row

    before = echo()
    requite("call", f"{url}/echo", "x")
    assert echo()["replied"] == before["replied"] + 1


def test_watch_repeats_the_output(url):
    with running("services", url, "--json", "--watch", "0.1") as watching:
        for _ in range(3):
            assert '"services"' in watching.line()
        watching.send(signal.SIGINT)
        assert watching.end()[0] == ExitCode.INTERRUPTED


@pytest.mark.parametrize("words", [("services", UNREACHABLE, "--timeout", "0.3")])
def test_no_broker(words):
    ended = requite(*words)
    assert (ended.code, ended.out) == (ExitCode.NO_CONNECTION, "")
    assert f"check that a broker listens at {UNREACHABLE}" in ended.err


# --- bench ----------------------------------------------------------------------------------------
def test_the_number_of_calls_can_be_set(url):
    ended = requite("bench", f"{url}/echo", "--requests", "500", "--size", "100", "--json")
    assert (ended.code, ended.err) == (0, "")
    record = ended.record
    assert (record["requests"], record["answered"], record["failures"]) == (500, 500, {})
    assert 0 < record["p50_ms"] <= record["p90_ms"] <= record["p99_ms"] <= record["max_ms"]
    assert record["requests_per_s"] == pytest.approx(500 / record["took_s"], rel=0.05)
    assert "calls per second" in ended.out
    assert "█" in ended.out


def test_several_clients_share_the_calls(url):
    words = ("--requests", "300", "--clients", "3", "--concurrency", "7", "--json")
    assert requite("bench", f"{url}/echo", *words).record["answered"] == 300


def test_the_duration_can_be_set(url):
    record = requite("bench", f"{url}/echo", "--duration", "0.3", "--json").record
    assert record["answered"] > 0
    assert 0.3 <= record["took_s"] < 20


def test_a_call_that_times_out_is_reported_before_the_measurement(url):
    words = ("--requests", "20", "--body", "30", "--timeout", "1.5", "--json")
    ended = requite("bench", f"{url}/slow", *words)
    assert (ended.code, ended.out) == (ExitCode.TIMEOUT, "")
    assert "may have run" in ended.err


def test_some_failed_calls_make_the_run_fail(tmp_path):
    (tmp_path / "moody.py").write_text(
        "import itertools, requite\n"
        "turns = itertools.count()\n"
        "@requite.service('moody')\n"
        "async def moody(request):\n"
        "    if next(turns) % 2:\n"
        "        raise requite.RemoteFailure('not now')\n"
        "    return b'fine'\n",
        encoding="utf-8",
    )
    with (
        running_broker() as (_broker, url),
        running("worker", "moody:moody", "--connect", url, cwd=tmp_path),
    ):
        ended = requite("bench", f"{url}/moody", "--requests", "21", "--json")
    assert ended.code == ExitCode.FAILED
    assert ended.record["failures"]["RemoteFailure"] >= 10
    assert ended.record["answered"] >= 10


def test_a_missing_service_is_reported_before_the_measurement(url):
    ended = requite("bench", f"{url}/nope", "--timeout", "1.5", "--requests", "5")
    assert (ended.code, ended.out) == (ExitCode.UNAVAILABLE, "")
    assert "no worker serves 'nope'" in ended.err
