"""The units in deploy/systemd: checked by systemd-analyze, and against the command's options."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.command import ENVIRONMENT, Running
from tests.deploy.files import CLOSING_S, COMMAND, DEPLOY, installed, tool

from requite.cli import main
from requite.cli.broker_options import Requests
from requite.cli.exit_codes import ExitCode
from requite.cli.worker import Handlers

UNITS = {"requite-broker.service": Requests(), "requite-worker@.service": Handlers()}
SYSTEMD = DEPLOY / "systemd"
ANALYZE = tool("systemd-analyze")
EXPOSURE_MAX = 15  # 1.5; a service without settings has 9.6

analyzed = pytest.mark.skipif(ANALYZE is None, reason="no systemd-analyze here")


def settings(unit: str) -> dict[str, list[str]]:
    """Return the values of each setting of a unit."""
    found: dict[str, list[str]] = {}
    for name, value in re.findall(r"^(\w+)=(.*)$", (SYSTEMD / unit).read_text(), re.M):
        found.setdefault(name, []).append(value)
    return found


def analyze(*words: str) -> subprocess.CompletedProcess[str]:
    assert ANALYZE is not None
    return subprocess.run([ANALYZE, *words], capture_output=True, text=True, check=False)


@analyzed
@pytest.mark.parametrize("unit", UNITS)
def test_systemd_accepts_the_unit(unit: str, tmp_path: Path) -> None:
    text = (SYSTEMD / unit).read_text().replace(COMMAND, sys.executable)
    (tmp_path / unit).write_text(text)
    drop_ins = tmp_path / "requite-broker.service.d"
    drop_ins.mkdir()
    (drop_ins / "access.conf").write_text((SYSTEMD / "requite-broker-access.conf").read_text())
    ended = analyze("verify", "--man=no", str(tmp_path / unit))
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


@analyzed
def test_systemd_refuses_a_wrong_unit(tmp_path: Path) -> None:
    unit = tmp_path / "requite-broker.service"
    unit.write_text((SYSTEMD / unit.name).read_text().replace("KillMode=", "KillMod="))
    assert "Unknown key" in analyze("verify", "--man=no", str(unit)).stderr


@analyzed
@pytest.mark.parametrize("unit", UNITS)
def test_the_unit_is_hardened(unit: str) -> None:
    ended = analyze(
        "security", "--offline=true", f"--threshold={EXPOSURE_MAX}", str(SYSTEMD / unit)
    )
    assert ended.returncode == 0, ended.stdout


@pytest.mark.parametrize("unit", UNITS)
def test_systemd_waits_longer_than_a_drain(unit: str) -> None:
    [stop_s] = settings(unit)["TimeoutStopSec"]
    assert float(stop_s) > UNITS[unit].drain_timeout + CLOSING_S


@pytest.mark.parametrize("unit", UNITS)
def test_a_wrong_configuration_is_not_retried(unit: str) -> None:
    assert settings(unit)["RestartPreventExitStatus"] == [str(int(ExitCode.USAGE))]
    assert settings(unit)["SuccessExitStatus"] == [str(int(ExitCode.STOPPED))]


def test_the_broker_of_the_example_is_valid(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "etc/requite/broker.toml"
    text = installed((SYSTEMD / "broker.toml").read_text(), tmp_path)
    file.write_text(text)
    [command] = settings("requite-broker.service")["ExecStartPre"]
    words = installed(command, tmp_path).split()
    assert words[0] == COMMAND
    assert main(words[1:]) == ExitCode.OK
    assert "for the users of" in capsys.readouterr().out
    [start] = settings("requite-broker.service")["ExecStart"]
    assert f"{start} --check" == command


def test_the_worker_of_the_example_is_valid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    users = tmp_path / "etc/requite/users"
    installed("", tmp_path)
    monkeypatch.setenv("REQUITE_CREDENTIALS_FILE", str(users))
    [start] = settings("requite-worker@.service")["ExecStart"]
    words = start.replace("/etc/requite/workers/%i", str(SYSTEMD / "echo")).split()
    assert main([*words[1:], "--check"]) == ExitCode.OK


@pytest.mark.parametrize(
    ("name", "variable"),
    [
        ("requite-broker-access.conf", "REQUITE_ACCESS_FILE=%d/access.toml"),
        ("requite-worker@.service", "REQUITE_CREDENTIALS_FILE=%d/user"),
    ],
)
def test_a_credential_is_where_the_command_looks_for_it(name: str, variable: str) -> None:
    [credential] = settings(name)["LoadCredential"]
    assert variable in settings(name)["Environment"]
    assert variable.endswith(f"/{credential.partition(':')[0]}")


_WITHOUT_WRITABLE_CODE = """
import ctypes, mmap, sys
if ctypes.CDLL(None).prctl(65, 1, 0, 0, 0):
    sys.exit(99)
try:
    mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
except PermissionError:
    from requite.cli import main
    sys.exit(main(sys.argv[1:]))
sys.exit(98)
"""


@pytest.mark.e2e
def test_the_broker_needs_no_writable_code(tmp_path: Path) -> None:
    """As with MemoryDenyWriteExecute=yes."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(66, 0, 0, 0, 0) < 0:  # PR_GET_MDWE
        pytest.skip(f"this kernel cannot deny it: {os.strerror(ctypes.get_errno())}")
    options = ("--bind", "tcp://127.0.0.1:0", "--titanic", str(tmp_path / "requests"))
    command = (sys.executable, "-c", _WITHOUT_WRITABLE_CODE, "broker", *options)
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
    )
    try:
        broker = Running(process)
        assert broker.line().startswith("listening on tcp://127.0.0.1:")
        broker.send(signal.SIGTERM)
        assert broker.end() == (ExitCode.OK, "", "")
    finally:
        process.kill()
        process.communicate()
