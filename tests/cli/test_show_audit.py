"""The end of the demo: what it needs, what it keeps, and when the audit agrees with its count."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.command import requite

from requite.cli.show import audit
from requite.cli.show.audit import Archive, Outcome, require_spark
from requite.cli.show.replies import Verdict
from requite.errors import ConfigurationError
from requite.testing.processes import Child, ProcessFailed

COUNTS = {
    "accepted": 10,
    "exactly_one": 10,
    "missing": 0,
    "duplicate": 0,
    "in_flight": 0,
    "orphan": 0,
    "accepted_twice": 0,
    "dropped_events": 0,
    "damaged": 0,
}


def verdict(requests: int = 10, answered: int = 10) -> Verdict:
    return Verdict(
        requests=requests,
        answered=answered,
        correct=answered,
        lost=requests - answered,
        duplicated=0,
        retries=3,
        worker_kills=1,
        broker_kills=1,
        requests_per_s=1000.0,
        p50_ms=1.0,
        p99_ms=2.0,
    )


def outcome(**counts: int) -> Outcome:
    return Outcome(COUNTS | counts, 90, 4.5, Path("report.html"))


def test_an_audit_that_counts_the_same_agrees():
    assert outcome().agrees_with(verdict())
    assert outcome().record() == {
        "accepted": 10,
        "exactly_one": 10,
        "missing": 0,
        "duplicate": 0,
        "in_flight": 0,
    }


@pytest.mark.parametrize(
    "counts",
    [
        {"accepted": 9, "exactly_one": 9},
        {"exactly_one": 9, "missing": 1},
        {"exactly_one": 9, "in_flight": 1},
        {"exactly_one": 9, "duplicate": 1},
        *({name: 1} for name in list(COUNTS)[5:]),
    ],
)
def test_any_other_count_does_not(counts):
    assert not outcome(**counts).agrees_with(verdict())


def test_a_call_that_ended_without_an_answer_is_a_disagreement():
    """For the journal a timeout is an end; the demo has lost a request."""
    assert not outcome().agrees_with(verdict(answered=9))


def test_only_the_report_is_left_of_a_temporary_archive(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    archive = Archive(None)
    for folder in (archive.journal, archive.lake, archive.scratch):
        folder.mkdir()
        (folder / "file").write_text("x")
    archive.report.write_text("<html>")
    archive.clear()
    assert [path.name for path in archive.folder.iterdir()] == ["report.html"]


def test_nothing_is_left_of_a_stage_without_a_report(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    archive = Archive(None)
    archive.journal.mkdir()
    archive.clear()
    assert list(tmp_path.iterdir()) == []


def test_a_stage_that_is_kept_keeps_all_but_the_scratch(tmp_path):
    archive = Archive(tmp_path / "new" / "folder")
    for folder in (archive.journal, archive.lake, archive.scratch):
        folder.mkdir()
    archive.clear()
    assert {path.name for path in archive.folder.iterdir()} == {"journal", "lake"}


def test_a_folder_with_something_in_it_is_refused_and_left_alone(tmp_path):
    (tmp_path / "mine").write_text("x")
    with pytest.raises(ConfigurationError, match="is not empty; name a new folder"):
        Archive(tmp_path)
    with pytest.raises(ConfigurationError, match="cannot use"):
        Archive(tmp_path / "mine")
    assert (tmp_path / "mine").read_text() == "x"


def test_what_is_missing_is_named_with_the_extra_that_brings_it(monkeypatch):
    def find_spec(name: str) -> None:
        assert name in audit._NEEDED

    monkeypatch.setattr(audit, "find_spec", find_spec)
    with pytest.raises(ConfigurationError, match=r"requires pyspark, .*requite\[spark,report\]"):
        require_spark()


def test_without_spark_the_demo_says_so_at_once_and_does_nothing(tmp_path):
    """A folder that hides pyspark stands for an installation without it."""
    hidden = tmp_path / "sitecustomize.py"
    hidden.write_text(
        "import importlib.machinery as m\n"
        "find = m.PathFinder.find_spec\n"
        "def hide(name, *rest, **named):\n"
        "    return None if name == 'pyspark' else find(name, *rest, **named)\n"
        "m.PathFinder.find_spec = hide\n"
    )
    ended = requite("demo", env={"PYTHONPATH": str(tmp_path)})
    assert ended.code == 2
    assert ended.out == ""
    assert "pip install 'requite[spark,report]', or skip it with --no-audit" in ended.err
    assert ended.err.count("\n") == 1


def test_keeping_nothing_is_a_contradiction(tmp_path):
    ended = requite("demo", "--no-audit", "--keep", str(tmp_path / "new"))
    assert (ended.code, ended.out) == (2, "")
    assert "--keep cannot be combined with --no-audit" in ended.err
    assert list(tmp_path.iterdir()) == []


def test_a_child_reads_lines_and_its_end_is_noticed():
    child = Child("the table", ["-m", "json.tool", "--json-lines"], has_stdin=True)
    child.write_line(json.dumps({"a": 1}))
    child._process.stdin.close()
    assert (child.read_line(), child.read_line()) == ("{", '    "a": 1')
    child.read_line()
    with pytest.raises(ProcessFailed, match="the table ended"):
        child.read_line()
    child.kill()


def test_writing_to_a_child_that_has_ended_does_not_raise():
    child = Child("the table", ["-m", "json.tool", "--no-such-option"], has_stdin=True)
    with pytest.raises(ProcessFailed, match=r"(?s)the table did not start: .*usage"):
        child.read_line()
    child.write_line("go")
    child.kill()
