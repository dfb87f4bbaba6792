"""`requite --install-completion`: a shell in an empty home folder completes afterwards."""

from __future__ import annotations

import os
import select
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from tests.cli.command import COMMAND, ENVIRONMENT, WAIT_S, requite

from requite.cli.exit_codes import ExitCode

pytestmark = pytest.mark.e2e

PROMPT: Final = "ready> "
# Where each shell reads at its start how its prompt looks; the test waits for the prompt.
SHELLS: Final = {
    "bash": (".bashrc", f"PS1='{PROMPT}'"),
    "zsh": (".zshrc", f"PS1='{PROMPT}'"),
    "fish": (".config/fish/config.fish", f"function fish_prompt; echo -n '{PROMPT}'; end"),
}
# What is typed, a tab after each beginning of a word; and the command line that comes of it.
TYPED: Final = [
    ("requite brok\t--partials-for-0.1 jo\t", "broker --partials-for-0.1 join"),
    ("requite tit\tprom\t", "titanic promote"),
    ("requite pool poi\tret\t--mana\t", "pool poison retry --manager"),
]


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest) -> str:
    """The name of a shell that is on this machine."""
    name: str = request.param
    if shutil.which(name) is None:
        pytest.skip(f"no {name} here")
    return name


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """An empty home folder."""
    path = tmp_path / "home"
    path.mkdir()
    return path


@pytest.fixture
def environment(home: Path, tmp_path: Path) -> dict[str, str]:
    """A person with an empty home folder, whose `requite` prints the words that it gets."""
    folder = tmp_path / "bin"
    folder.mkdir()
    command = folder / "requite"
    command.write_text('#!/bin/sh\necho "ran: $*."\n')
    command.chmod(0o755)
    kept = {name: os.environ[name] for name in ("LANG", "LC_ALL") if name in os.environ}
    search = f"{folder}:{os.environ['PATH']}"
    return {**kept, "HOME": str(home), "PATH": search, "TERM": "xterm"}


def install(shell: str, environment: dict[str, str]) -> str:
    """Install as a person does, in the shell itself, so that it has to be detected."""
    words = shlex.join([*COMMAND, "--install-completion"])
    ended = subprocess.run(
        [shell, "-c", f"{words}; true"],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        env=ENVIRONMENT | environment,
        check=True,
    )
    assert ended.stderr == ""
    return ended.stdout


@contextmanager
def terminal(words: tuple[str, ...], environment: dict[str, str]) -> Iterator[int]:
    """Run a command in a terminal; yield the terminal.

    `setsid` makes it the command's own, since `pty.fork` would run Python in a child of a process
    with threads, which may hang there.
    """
    fd, inner = os.openpty()
    command = subprocess.Popen(
        ["setsid", "--ctty", *words], stdin=inner, stdout=inner, stderr=inner, env=environment
    )
    os.close(inner)
    try:
        yield fd
    finally:
        os.close(fd)  # it gets SIGHUP
        try:
            command.wait(WAIT_S)
        except subprocess.TimeoutExpired:
            command.kill()
            command.wait()
            raise


def read_until(fd: int, expected: str) -> None:
    """Read what the terminal shows until `expected` is there.

    Press Enter each second while it shows nothing: the kernels of some virtual machines keep what a
    shell has written from whoever reads until the terminal is written to.
    """
    shown = b""
    until = time.monotonic() + WAIT_S
    while expected.encode() not in shown:
        assert time.monotonic() < until, f"no {expected!r} in {shown!r}"
        ready, _, _ = select.select([fd], [], [], 1.0)
        if ready:
            shown += os.read(fd, 65536)
        else:
            os.write(fd, b"\r")


def test_a_shell_in_an_empty_home_completes_after_one_command(shell, home, environment):
    said = install(shell, environment)
    assert said.startswith(f"installed completion for {shell} in {home}/")
    startup_file, prompt = SHELLS[shell]
    with (home / startup_file).open("a") as file:
        file.write(f"{prompt}\n")
    with terminal((shell, "-i"), environment) as fd:
        for typed, completed in TYPED:
            read_until(fd, PROMPT)
            os.write(fd, f"{typed}\r".encode())
            read_until(fd, f"ran: {completed}.")


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_installing_twice_changes_the_startup_file_once_and_keeps_what_is_in_it(shell, home):
    file = home / SHELLS[shell][0]
    file.write_text("alias ll='ls -l'")  # no line break at its end
    environment = {"HOME": str(home), "ZDOTDIR": "", "ZSH": "", "ZSH_CUSTOM": ""}
    for _ in range(2):
        ended = requite("--install-completion", "--shell", shell, env=environment)
        assert (ended.code, ended.err) == (0, "")
    lines = file.read_text().splitlines()
    assert lines[0] == "alias ll='ls -l'"
    assert lines.count("# Load requite completion") == 1


def test_a_shell_that_cannot_be_told_has_to_be_named(home):
    environment = {"HOME": str(home), "SHELL": "", "PATH": str(home)}
    ended = requite("--install-completion", env=environment)
    assert (ended.code, ended.out) == (ExitCode.USAGE, "")
    assert "--shell with one of bash, zsh, fish" in ended.err


def test_a_home_that_cannot_be_written_to_is_told(tmp_path):
    (tmp_path / "home").touch()
    environment = {"HOME": str(tmp_path / "home")}
    ended = requite("--install-completion", "--shell", "fish", env=environment)
    assert (ended.code, ended.out) == (ExitCode.USAGE, "")
    assert "cannot write" in ended.err
    assert str(tmp_path / "home") in ended.err
