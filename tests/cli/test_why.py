"""`requite why`: one request, failed requests, and every kind of bad input."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.cli.command import requite, running_broker, running_worker
from tests.spark.source.journals import LogWriter, call_id, failure, span
from tests.support.live import eventually

from requite.chronicle import EventRow, Kind, WriterRole
from requite.cli.exit_codes import ExitCode

pytestmark = pytest.mark.e2e

EXAMPLE = "37318fdeaa15e1b00000000000000007"


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A journal of a broker and a client: call 1 was answered, call 2 failed."""
    path = tmp_path_factory.mktemp("why") / "journal"
    with LogWriter(path) as broker:
        broker.spans([span(1), span(3, at=60.0)])
        broker.event_rows([EventRow(0.5, Kind.ACCEPTED, call_id(2), b"echo", value=9.0)])
        broker.event_rows([failure(2, at=1.0)])
    with LogWriter(path, WriterRole.CLIENT, b"client-1") as client:
        client.spans([(0.0, 0.0, 0.8, 5.0, call_id(1), b"echo", b"", 10, 1)])
    return path


# --- a request --------------------------------------------------------------------------------
def test_a_request_is_told_in_words(journal):
    ended = requite("why", str(journal), call_id(1).hex())
    assert (ended.code, ended.err) == (0, "")
    lines = ended.out.splitlines()
    assert lines[0] == f"Request {call_id(1).hex()}, service echo"
    assert any("client 636c6965" in line and "takes the call: 10 B" in line for line in lines)
    assert any("broker 62726f6b" in line and "gives it to worker" in line for line in lines)
    assert "EXACTLY_ONE: accepted, and ended once, in time" in lines
    assert "Its caller got the reply (1 B) after 800 ms." in lines


def test_the_id_may_be_in_capitals_and_the_journals_in_several_folders(journal, tmp_path):
    client = next(journal.glob("client-*"))
    shutil.copytree(client, tmp_path / "laptop" / client.name)
    broker = next(journal.glob("broker-*"))
    ended = requite(
        "why", str(broker), str(tmp_path / "laptop"), call_id(1).hex().upper(), "--json"
    )
    assert ended.code == 0
    record = ended.record
    assert (record["verdict"], record["end"]["role"]) == ("EXACTLY_ONE", "client")
    assert {log["log"].partition("-")[0] for log in record["logs"]} == {"broker", "client"}
    assert {event["role"] for event in record["events"]} == {"broker", "client"}
    assert record["steps"][0]["what"] == "accepts it: 10 B, due in 5 s"


def test_a_real_call_that_failed_is_found_by_the_id_in_its_error(tmp_path):
    folder = str(tmp_path / "journal")
    with (
        running_broker("--journal", folder) as (_, url),
        running_worker("requite.examples:fail", "--connect", url, "--journal", folder),
    ):
        failed = requite("call", f"{url}/fail", "x", "--json", "--journal", folder)
        assert failed.code == ExitCode.FAILED
        request_id = failed.record["request_id"]

        def roles():
            record = requite("why", folder, request_id, "--json").record
            return {event["role"] for event in record.get("events", ())}

        eventually(lambda: roles() == {"client", "broker", "worker"}, "all have written it")
        told = requite("why", folder, request_id)
        listed = requite("why", folder, "--failed")
    assert "Its caller got RemoteFailure after" in told.out
    assert "its handler ends with RemoteFailure" in told.out
    assert request_id in listed.out
    assert "1 request failed between" in listed.out


def test_control_characters_of_peers_are_escaped(tmp_path):
    with LogWriter(tmp_path) as writer:
        evil = failure(1)._replace(reason="\x1b[31mred\nline", service=b"ec\x07ho")
        writer.event_rows([evil])
    for words in ((call_id(1).hex(),), ("--failed",)):
        out = requite("why", str(tmp_path), *words).out
        assert "red" in out
        assert "\x1b" not in out
        assert "\x07" not in out


def test_a_long_story_is_cut_in_the_middle(tmp_path):
    with LogWriter(tmp_path) as writer:
        rows = [EventRow(n / 10, Kind.QUEUED, call_id(1), b"echo") for n in range(300)]
        writer.event_rows(rows)
    ended = requite("why", str(tmp_path), call_id(1).hex())
    assert ended.out.count("queues it") == 100 + 1  # and in the sentence about the newest event
    assert "200 more events; --json has all" in ended.out
    assert len(requite("why", str(tmp_path), call_id(1).hex(), "--json").record["events"]) == 300


# --- a request that is not there ----------------------------------------------------------------
def test_an_unknown_request_shows_what_the_journals_cover(journal):
    ended = requite("why", str(journal), EXAMPLE)
    assert (ended.code, ended.err) == (ExitCode.FAILED, "")
    assert f"No event of request {EXAMPLE} is in these journals." in ended.out
    assert "client-636c69656e742d31" in ended.out
    assert "2026-03-02 12:00:00.000" in ended.out
    assert "A request of the last 0.1 s is not written yet." in ended.out
    record = requite("why", str(journal), EXAMPLE, "--json").record
    assert (record["found"], record["request_id"], len(record["logs"])) == (False, EXAMPLE, 2)


def test_what_the_journals_lack_is_named(tmp_path):
    roll = tmp_path / ".logs"
    roll.mkdir()
    (roll / "client-0123456789abcdef").touch()
    with LogWriter(tmp_path) as writer:
        writer.event_rows([EventRow(2.0, Kind.DROPPED, value=3.0)])
        writer.raw(b"no block")
    for request_id in (EXAMPLE, call_id(1).hex()):
        out = requite("why", str(tmp_path), request_id).out
        name = f"broker-{b'broker-1'.hex()}"
        assert f"{name} lost 3 rows: its buffer was full." in out
        assert f"1 place in {name} cannot be read." in out
        assert "client-0123456789abcdef is missing: the log began there" in out


def test_an_empty_journal_says_so(tmp_path):
    ended = requite("why", str(tmp_path), EXAMPLE)
    assert ended.code == ExitCode.FAILED
    assert "They are empty: no process has written them yet." in ended.out
    ended = requite("why", str(tmp_path), "--failed")
    assert ended.code == 0
    assert "The journals are empty" in ended.out


def test_a_journal_whose_index_cannot_be_kept_says_so(journal, tmp_path):
    shutil.copytree(journal, tmp_path / "journal", ignore=shutil.ignore_patterns(".index", "lock"))
    for log in (tmp_path / "journal").glob("*-*"):
        (log / ".index").touch()
    ended = requite("why", str(tmp_path / "journal"), call_id(1).hex())
    assert ended.code == 0
    assert "the index of the journal cannot be kept (" in ended.err


# --- failed requests --------------------------------------------------------------------------
def test_failed_requests_are_listed(journal):
    ended = requite("why", str(journal), "--failed", "--since", "1h")
    assert ended.code == 0
    assert call_id(2).hex() in ended.out
    assert "RemoteFailure" in ended.out
    assert "out of stock" in ended.out
    assert "1 request failed between" in ended.out
    record = requite("why", str(journal), "--failed", "--json").record
    assert [each["request_id"] for each in record["failures"]] == [call_id(2).hex()]
    assert record["failures"][0]["error"] == "RemoteFailure"
    assert record["has_more"] is False
    assert "No request failed" in requite("why", str(journal), "--failed", "--since", "9s").out


# --- arguments --------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), "name a journal and the ID of a request"),
        ((EXAMPLE,), f"name the journal of the request before its ID: requite why DIR {EXAMPLE}"),
        (("JOURNAL",), "name a journal and the ID of a request"),
        (("JOURNAL", "7"), "`7` is not the ID of a request, which has 32 hexadecimal digits"),
        (("JOURNAL", "7"), f"such as {EXAMPLE}; `request_id` of an error has it"),
        (("JOURNAL", EXAMPLE[:-1] + "g"), "is not the ID of a request"),
        (("/no/such/folder", EXAMPLE), "there is no journal at /no/such/folder"),
        (("mdp://127.0.0.1:5555", EXAMPLE), "is an address to call; name the folder"),
        (("--failed",), "name a journal"),
        (("JOURNAL", "--failed", "--since", "soon"), "--since: `soon` is not a time such as"),
        (("JOURNAL", "--failed", "--since", "1000000d"), "1000000d is more than 36500 days"),
        (("JOURNAL", "--failed", "--lines", "0"), "--lines"),
    ],
)
def test_wrong_arguments_are_refused(words, expected, journal, refusal):
    given = [str(journal) if word == "JOURNAL" else word for word in words]
    assert expected in refusal("why", *given).replace("\n", " ")
