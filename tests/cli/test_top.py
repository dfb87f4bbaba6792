"""`requite top` as a command: one table, one object, and a real terminal."""

from __future__ import annotations

import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

import pytest
from tests.cli.command import COMMAND, ENVIRONMENT, WAIT_S, requite, running_broker

from requite.cli.exit_codes import ExitCode

pytestmark = pytest.mark.e2e

UNREACHABLE = "mdp://127.0.0.1:1"


# --- once -----------------------------------------------------------------------------------------
def test_it_prints_one_table(url: str) -> None:
    ended = requite("top", url, "--once", "--interval", "0.2")
    assert (ended.code, ended.err) == (0, "")
    first, *_ = ended.out.splitlines()
    assert first == f" {url}  serving"
    rows = {line.split()[0]: line.split() for line in ended.out.splitlines() if line.strip()}
    assert rows["SERVICE"][:3] == ["SERVICE", "WORKERS", "IDLE"]
    for name in ("echo", "count", "fail", "slow"):
        assert rows[name][1] == "1"
    assert "\x1b" not in ended.out


def test_without_a_terminal_it_prints_one_table_and_says_so(url: str) -> None:
    ended = requite("top", url, "--interval", "0.2")
    assert ended.code == 0
    assert "SERVICE" in ended.out
    assert "stdin is not a terminal, so this is one table" in ended.err


def test_it_prints_one_object(url: str) -> None:
    ended = requite("top", url, "--once", "--json", "--interval", "0.2")
    assert (ended.code, ended.err, len(ended.out.splitlines())) == (0, "", 1)
    record = ended.record
    assert (record["services_count"], record["draining"], record["p99_s"]) == (4, False, None)
    assert 0.2 <= record["interval_s"] < 20
    assert {each["service"] for each in record["services"]} == {"echo", "count", "fail", "slow"}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["mdp://127.0.0.1:1", "--json"], "--json requires --once"),
        (["sp+tcp://127.0.0.1:1", "--once"], "has no broker to ask"),
        (["mdp://127.0.0.1:1", "--interval", "0.1"], "--interval"),
        (["mdp://127.0.0.1:1", "--interval", "61"], "--interval"),
        (["mdp://127.0.0.1:1", "--interval", "nan"], "--interval"),
        (["http://127.0.0.1:1", "--once"], "http"),
    ],
)
def test_wrong_arguments(words: list[str], expected: str, refusal: Any) -> None:
    assert expected in refusal("top", *words)


def test_no_broker() -> None:
    ended = requite("top", UNREACHABLE, "--once", "--timeout", "0.3")
    assert (ended.code, ended.out) == (ExitCode.NO_CONNECTION, "")
    assert f"check that a broker listens at {UNREACHABLE}" in ended.err


def test_who_has_no_right_is_told_so(tmp_path: Any) -> None:
    access = tmp_path / "access.toml"
    access.write_text('[user.anybody]\nanonymous = true\ncall = ["*"]\n')
    access.chmod(0o600)
    with running_broker("--access", str(access)) as (_broker, place):
        for dialect in ("0.3", "0.2"):
            ended = requite("top", place, "--once", "--dialect", dialect, "--timeout", "5")
            assert (ended.code, ended.out) == (ExitCode.FAILED, ""), ended.err
            assert "`requite access whoami" in ended.err
            assert "stats" in ended.err


def test_without_its_package_it_says_what_to_install(url: str) -> None:
    program = (
        "import sys; sys.modules['textual'] = None;"
        "from requite.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    with Terminal(sys.executable, "-c", program, "top", url) as terminal:
        assert terminal.ended() == ExitCode.USAGE
        assert "pip install 'requite[top]'" in terminal.text


# --- a terminal -----------------------------------------------------------------------------------
class Terminal:
    """A command in a pseudo-terminal of 80 columns and 24 lines."""

    def __init__(self, *command: str, **environment: str) -> None:
        self._ours, theirs = os.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.before = termios.tcgetattr(theirs)
        self._theirs = theirs

        def take_terminal() -> None:
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        names = ("COLUMNS", "NO_COLOR")
        usual = {name: value for name, value in ENVIRONMENT.items() if name not in names}
        self.process = subprocess.Popen(
            command,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=usual | {"TERM": "xterm-256color"} | environment,
            preexec_fn=take_terminal,
        )
        self._written = bytearray()

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)
        os.close(self._theirs)

    @property
    def text(self) -> str:
        """What the command has written, without escape sequences."""
        return re.sub(r"\x1b\[[0-9;?<>=$]*[a-zA-Z]|\x1b[()].|\r", "", self.written)

    @property
    def written(self) -> str:
        """All that the command has written."""
        return self._written.decode(errors="replace")

    def read(self) -> None:
        """Read what there is, for up to a tenth of a second."""
        if select.select([self._ours], [], [], 0.1)[0]:
            self._written += os.read(self._ours, 65536)

    def until(self, *texts: str) -> None:
        """Read until the command has written these texts."""
        end = monotonic() + WAIT_S
        while not all(text in self.text for text in texts):
            assert monotonic() < end, self.text
            self.read()

    def press(self, keys: str) -> None:
        """Type keys."""
        os.write(self._ours, keys.encode())

    def ended(self) -> int:
        """Read until the command ends, and return its exit code."""
        end = monotonic() + WAIT_S
        while self.process.poll() is None:
            assert monotonic() < end, self.text
            self.read()
        while select.select([self._ours], [], [], 0)[0]:
            self.read()
        return self.process.returncode

    @property
    def is_restored(self) -> bool:
        """Whether the terminal is as it was: its modes, its main screen, its cursor."""
        modes = termios.tcgetattr(self._theirs) == self.before
        screen = self.written.rfind("\x1b[?1049l") > self.written.rfind("\x1b[?1049h") >= 0
        cursor = self.written.rfind("\x1b[?25h") > self.written.rfind("\x1b[?25l")
        mouse = self.written.rfind("\x1b[?1000l") > self.written.rfind("\x1b[?1000h")
        return modes and screen and cursor and mouse


@contextmanager
def top(url: str, *options: str, **environment: str) -> Iterator[Terminal]:
    """Run `requite top` in a terminal, and wait for its first rows."""
    with Terminal(*COMMAND, "top", url, *options, **environment) as terminal:
        terminal.until("SERVICE", "echo", "slow", "q quit")
        yield terminal


@pytest.mark.parametrize(("key", "code"), [("q", ExitCode.OK), ("\x03", ExitCode.INTERRUPTED)])
def test_a_key_ends_it_and_the_terminal_is_restored(url: str, key: str, code: ExitCode) -> None:
    with top(url) as terminal:
        terminal.press(key)
        assert (terminal.ended(), terminal.is_restored) == (code, True), terminal.text


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGTERM, ExitCode.STOPPED),
        (signal.SIGINT, ExitCode.INTERRUPTED),
        (signal.SIGHUP, ExitCode.STOPPED),
    ],
)
def test_a_signal_ends_it_and_the_terminal_is_restored(
    url: str, number: signal.Signals, code: ExitCode
) -> None:
    with top(url) as terminal:
        terminal.process.send_signal(number)
        assert (terminal.ended(), terminal.is_restored) == (code, True), terminal.text


def test_colours_are_those_of_the_terminal(url: str) -> None:
    with top(url) as terminal:
        assert re.search(r"\x1b\[[0-9;]*\b32\b", terminal.written)  # green: serving
        assert not re.search(r"\x1b\[[0-9;]*\b[34]8;", terminal.written)
        terminal.press("q")
        assert terminal.ended() == ExitCode.OK


def test_no_color_has_no_colours(url: str) -> None:
    with top(url, NO_COLOR="1") as terminal:
        assert not re.search(
            r"\x1b\[(?:[0-9]+;)*(?:3[0-7]|4[0-7]|[34]8;[0-9;]*)m", terminal.written
        )
        terminal.press("q")
        assert terminal.ended() == ExitCode.OK


def test_a_dumb_terminal_gets_one_table(url: str) -> None:
    command = (*COMMAND, "top", url, "--interval", "0.2")
    with Terminal(*command, TERM="dumb") as terminal:
        assert terminal.ended() == ExitCode.OK
        assert "cannot move its cursor, so this is one table" in terminal.text
        assert "echo" in terminal.text
        assert "\x1b[?1049h" not in terminal.written


def test_log_lines_do_not_damage_the_display(url: str) -> None:
    with top(url, "-vv") as terminal:
        terminal.press("q")
        assert terminal.ended() == ExitCode.OK
        screens = terminal.written.split("\x1b[?1049h")[1].split("\x1b[?1049l")[0]
        assert "\n" not in screens.replace("\r\n", "")
