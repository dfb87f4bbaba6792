"""`requite pool ls`, `poison ls` and `drain` with a stub for the manager."""

from __future__ import annotations

from typing import Any

import pytest

from requite.cli import main
from requite.cli.exit_codes import ExitCode

GROUP = {
    "key": "42",
    "expected": "active",
    "queue": "bound",
    "running": True,
    "workers": 3,
    "version": "3b1f0c5ad9e2",
    "messages": 1234,
    "failure": None,
    "flaws": [],
}
GONE = {
    "key": "a\nb",
    "expected": None,
    "queue": None,
    "running": False,
    "workers": None,
    "version": None,
    "messages": None,
    "failure": "no program 'wrk'",
    "flaws": ["its delivery limit is 9"],
}
POISONED = {
    "id": "d59e062198861f64",
    "attempts": 2,
    "size_bytes": 3000,
    "correlation_id": "c",
    "key": "43",
}


def answer(monkeypatch: pytest.MonkeyPatch, module: str, response: dict[str, Any]) -> None:
    """Replace the request to the manager in a command's module; it returns `response`."""
    monkeypatch.setattr(f"requite.cli.pool.{module}.ask", lambda *_: response)


def test_each_group_is_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answer(monkeypatch, "ls", {"groups": [GROUP, GROUP | {"workers": 1, "messages": 1}, GONE]})
    assert main(["pool", "ls"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "active   bound    3 workers   1,234 messages 3b1f0c5ad9e2   42",
        "active   bound    1 worker    1 message    3b1f0c5ad9e2   42",
        r"gone     unknown  no workers  -            -              a\nb",
        "         no program 'wrk'",
        "         its delivery limit is 9",
    ]


def test_only_existing_groups_are_drained(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []

    def ask(_manager: object, path: str, body: Any = None) -> Any:
        asked.append((path, body))
        return {"state": "active", "groups": [GROUP]}

    monkeypatch.setattr("requite.cli.pool.drain.ask", ask)
    assert main(["pool", "drain", "42", "nobody"]) == ExitCode.USAGE
    assert "unknown group 'nobody'" in capsys.readouterr().err
    assert asked == [("/status", None)]
    assert main(["pool", "drain", "42"]) == ExitCode.OK
    assert asked[-1] == ("/release", {"key": "42"})


def test_each_poisoned_request_is_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answer(monkeypatch, "poison.ls", {"poison": [POISONED], "more": 0})
    assert main(["pool", "poison", "ls"]) == 0
    assert capsys.readouterr().out == "d59e062198861f64  2 tried  3,000 B  c  43\n"
