"""The audit of the demo: its packages, its archive, and its agreement with the demo's counts."""

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
def test_other_counts_disagree(counts):
    assert not outcome(**counts).agrees_with(verdict())


def test_a_call_that_ended_without_an_answer_is_a_disagreement():
    """The journal counts a timeout as an answer; the demo counts the request as lost."""
    assert not outcome().agrees_with(verdict(answered=9))


def test_a_temporary_archive_keeps_only_the_report(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    archive = Archive(None)
    for folder in (archive.journal, archive.lake, archive.scratch):
        folder.mkdir()
        (folder / "file").write_text("x")
    archive.report.write_text("<html>")
    archive.clear()
    assert [path.name for path in archive.folder.iterdir()] == ["report.html"]


def test_a_temporary_archive_without_a_report_is_removed(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    archive = Archive(None)
    archive.journal.mkdir()
    archive.clear()
    assert list(tmp_path.iterdir()) == []


def test_a_named_archive_keeps_all_but_its_scratch_folder(tmp_path):
    archive = Archive(tmp_path / "new" / "folder")
    for folder in (archive.journal, archive.lake, archive.scratch):
        folder.mkdir()
    archive.clear()
    assert {path.name for path in archive.folder.iterdir()} == {"journal", "lake"}


def test_a_folder_that_is_not_empty_is_refused_and_unchanged(tmp_path):
    (tmp_path / "mine").write_text("x")
    with pytest.raises(ConfigurationError, match="is not empty; name a new folder"):
        Archive(tmp_path)
    with pytest.raises(ConfigurationError, match="cannot use"):
        Archive(tmp_path / "mine")
    assert (tmp_path / "mine").read_text() == "x"


def test_missing_packages_are_named_with_their_extra(monkeypatch):
    def find_spec(name: str) -> None:
        assert name in audit._NEEDED

    monkeypatch.setattr(audit, "find_spec", find_spec)
    with pytest.raises(ConfigurationError, match=r"requires pyspark, .*requite\[spark,report\]"):
        require_spark()


def test_without_spark_the_demo_exits_at_once(tmp_path):
    """A `sitecustomize` module hides pyspark, as if it was not installed."""
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


def test_keep_without_an_audit_is_refused(tmp_path):
    ended = requite("demo", "--no-audit", "--keep", str(tmp_path / "new"))
    assert (ended.code, ended.out) == (2, "")
    assert "--keep cannot be combined with --no-audit" in ended.err
    assert list(tmp_path.iterdir()) == []


def test_reading_from_a_child_that_has_exited_raises():
    child = Child("the table", ["-m", "json.tool", "--json-lines"], has_stdin=True)
    child.write_line(json.dumps({"a": 1}))
    child._process.stdin.close()
    assert (child.read_line(), child.read_line()) == ("{", '    "a": 1')
    child.read_line()
    with pytest.raises(ProcessFailed, match="the table ended"):
        child.read_line()
    child.kill()


def test_writing_to_a_child_that_has_exited_does_not_raise():
    child = Child("the table", ["-m", "json.tool", "--no-such-option"], has_stdin=True)
    with pytest.raises(ProcessFailed, match=r"(?s)the table did not start: .*usage"):
        child.read_line()
    child.write_line("go")
    child.kill()
