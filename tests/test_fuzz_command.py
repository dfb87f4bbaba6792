"""`python -m fuzz`: its targets, its errors, and its reports."""

from __future__ import annotations

import subprocess
from importlib import import_module
from pathlib import Path

import pytest
from fuzz import __main__ as command


def test_every_target_runs_and_has_a_corpus(tmp_path: Path) -> None:
    assert {"fuzz_majordomo_broker", "fuzz_majordomo_wire", "fuzz_zmtp"} <= set(command.targets())
    for name in command.targets():
        target = import_module(f"fuzz.{name}")
        target.make_corpus(tmp_path / name)
        inputs = sorted((tmp_path / name).iterdir())
        assert inputs
        target.one_input(inputs[0].read_bytes())


def test_targets_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--list"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(command.targets())


def test_an_unknown_target_is_rejected(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        command.main(["fuzz_nothing"])
    assert refused.value.code == 2
    assert "no target fuzz_nothing; the targets are" in capsys.readouterr().err


def test_without_atheris_the_error_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    assert command.main([]) == 2
    assert "`make fuzz` installs it" in capsys.readouterr().err


@pytest.mark.parametrize(("code", "verdict"), [(0, "nothing found"), (77, "FOUND SOMETHING")])
def test_each_target_runs_with_the_given_number_of_inputs_and_its_result_is_printed(
    code: int,
    verdict: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    ran: list[list[str]] = []

    def run(arguments: list[str], **_how: object) -> subprocess.CompletedProcess[str]:
        ran.append(arguments)
        (command.FINDINGS / "fuzz_zmtp-crash-1").touch()
        return subprocess.CompletedProcess(arguments, code, "out", "err")

    monkeypatch.setattr(command, "find_spec", lambda name: name)
    monkeypatch.setattr(command, "FOLDER", tmp_path / "fuzz")
    monkeypatch.setattr(command, "FINDINGS", tmp_path / "fuzz" / "findings")
    monkeypatch.setattr(command, "targets", lambda: {"fuzz_zmtp": "about"})
    monkeypatch.setattr(command.subprocess, "run", run)
    (tmp_path / "fuzz").mkdir()
    assert command.main(["--runs", "7"]) == (1 if code else 0)
    [arguments] = ran
    assert arguments[1:4] == ["-m", "fuzz.drive", "fuzz_zmtp"]
    assert "-runs=7" in arguments
    said = capsys.readouterr()
    assert verdict in said.out
    assert ("fuzz.again fuzz_zmtp fuzz/findings/fuzz_zmtp-crash-1" in said.err) == bool(code)
