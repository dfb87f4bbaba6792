"""`requite --install-completion`: afterwards, a shell with an empty home folder completes words."""

from __future__ import annotations

import os
import select
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Final, NamedTuple

import pytest
from tests.cli.command import (
    COMMAND,
    ENVIRONMENT,
    WAIT_S,
    requite,
    running_broker,
    running_worker,
)

from requite.cli import candidates
from requite.cli.exit_codes import ExitCode
from requite.cli.options import Connection

pytestmark = pytest.mark.e2e

PROMPT: Final = "ready> "
# The startup file of each shell, and the line that sets its prompt, for which the test waits.
SHELLS: Final = {
    "bash": (".bashrc", f"PS1='{PROMPT}'"),
    "zsh": (".zshrc", f"PS1='{PROMPT}'"),
    "fish": (".config/fish/config.fish", f"function fish_prompt; echo -n '{PROMPT}'; end"),
}
# The typed text, with a tab after each incomplete word, and the completed command line.
TYPED: Final = [
    ("requite brok\t--partials-for-0.1 jo\t", "broker --partials-for-0.1 join"),
    ("requite tit\tprom\t", "titanic promote"),
    ("requite pool poi\tret\t--mana\t", "pool poison retry --manager"),
]

SHOP: Final = """
import requite
orders = requite.Service("orders")

@orders.method
async def price(count: int) -> int:
    return count

@requite.service("echo")
async def echo(request):
    return request.body
"""


@pytest.fixture(params=SHELLS, scope="module")
def shell(request: pytest.FixtureRequest) -> str:
    """The name of an installed shell."""
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


def variables(home: Path, tools: Path) -> dict[str, str]:
    """Return the variables for a home folder, and for commands in a folder."""
    kept = {name: os.environ[name] for name in ("LANG", "LC_ALL") if name in os.environ}
    return {
        **kept,
        "HOME": str(home),
        "PATH": f"{tools}:{os.environ['PATH']}",
        "TERM": "xterm",
    }


class Installed(NamedTuple):
    """A home folder that was empty before the completion was installed, and what that printed."""

    home: Path
    said: str


@pytest.fixture(scope="module")
def installed(shell: str, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Install the completion from within the shell, so that the command must detect the shell."""
    folder = tmp_path_factory.mktemp(shell)
    home = folder / "home"
    home.mkdir()
    words = shlex.join([*COMMAND, "--install-completion"])
    ended = subprocess.run(
        [shell, "-c", f"{words}; true"],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        env=ENVIRONMENT | variables(home, folder),
        check=True,
    )
    assert ended.stderr == ""
    startup_file, prompt = SHELLS[shell]
    with (home / startup_file).open("a") as file:
        file.write(f"{prompt}\n")
    return Installed(home, ended.stdout)


@pytest.fixture
def environment(installed: Installed, tmp_path: Path) -> dict[str, str]:
    """Variables for this home folder, and for a `requite` that prints its arguments, but
    completes."""
    folder = tmp_path / "bin"
    folder.mkdir()
    command = folder / "requite"
    real = shlex.join(COMMAND)
    command.write_text(f'#!/bin/sh\n[ "$1" = __complete ] && exec {real} "$@"\necho "ran: $*."\n')
    command.chmod(0o755)
    return variables(installed.home, folder)


@contextmanager
def terminal(words: tuple[str, ...], environment: dict[str, str]) -> Iterator[int]:
    """Run a command in a new terminal; yield the terminal's file descriptor.

    `setsid` makes it the controlling terminal. `pty.fork` would run Python in a forked child of a
    process with threads, where it may hang.
    """
    fd, inner = os.openpty()
    command = subprocess.Popen(
        ["setsid", "--ctty", *words], stdin=inner, stdout=inner, stderr=inner, env=environment
    )
    os.close(inner)
    try:
        yield fd
    finally:
        os.close(fd)  # the command gets SIGHUP
        try:
            command.wait(WAIT_S)
        except subprocess.TimeoutExpired:
            command.kill()
            command.wait()
            raise


def read_until(fd: int, expected: str) -> None:
    """Read the output of the terminal until it contains `expected`.

    Press Enter after each second without output: the kernels of some virtual machines deliver the
    output of a shell only after something is written to the terminal.
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


def test_a_shell_in_an_empty_home_completes_after_one_command(shell, installed, environment):
    assert installed.said.startswith(f"installed completion for {shell} in {installed.home}/")
    with terminal((shell, "-i"), environment) as fd:
        for typed, completed in TYPED:
            read_until(fd, PROMPT)
            os.write(fd, f"{typed}\r".encode())
            read_until(fd, f"ran: {completed}.")


def test_a_shell_completes_the_services_of_a_broker(shell, environment, tmp_path):
    """Typed: the services of the broker in a URL, and typed services after it."""
    (tmp_path / "shop.py").write_text(SHOP)
    with (
        running_broker() as (_broker, url),
        running_worker("shop:orders", "shop:echo", "--connect", url, cwd=tmp_path),
        terminal((shell, "-i"), environment) as fd,
    ):
        typed = [
            (f"requite call {url}/orders.pr\tx", f"call {url}/orders.price x"),
            (f"requite call {url} --service ec\tx", f"call {url} --service echo x"),
            (f"requite describe {url} o\t", f"describe {url} orders"),
        ]
        for words, completed in typed:
            read_until(fd, PROMPT)
            os.write(fd, f"{words}\r".encode())
            read_until(fd, f"ran: {completed}.")


@pytest.mark.parametrize(
    "words",
    [
        ("call", "mdp://127.0.0.1:1/o"),
        ("call", "mdp://127.0.0.1:1", "--service", ""),
        ("call", "no url"),
        ("call", "mdp://user@127.0.0.1:1/"),
        ("call", "sp+tcp://127.0.0.1:1/o"),
        ("describe", "sp+tcp://127.0.0.1:1", ""),
        ("stub", "mdp://127.0.0.1:1", ""),
    ],
)
def test_without_a_broker_nothing_is_completed(words):
    ended = requite("__complete", *words)
    assert (ended.code, ended.out, ended.err) == (0, "\n\x1fbegin\n", "")


def test_a_silent_broker_completes_nothing():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        ended = requite("__complete", "call", f"mdp://127.0.0.1:{silent.getsockname()[1]}/")
    assert (ended.code, ended.out, ended.err) == (0, "\n\x1fbegin\n", "")


def test_a_look_up_without_end_is_cut(capfd):
    program = (
        "import socket, sys, time; socket.getaddrinfo = lambda *a, **k: time.sleep(600);"
        "from requite.cli import main; main(['__complete', 'call', 'mdp://no.example:1/'])"
    )
    ended = subprocess.run([sys.executable, "-c", program], timeout=WAIT_S, check=False)
    assert ended.returncode == 0
    assert "example" not in "".join(capfd.readouterr())


class Typed(dict):
    """What a shell has sent: options by name, and the word that is typed."""

    incomplete = "mdp://127.0.0.1:1/"


def test_names_that_a_shell_would_expand_are_left_out(monkeypatch):
    async def named_oddly(_url, _connection):
        return ["orders.price", "orders.describe", "$(reboot)", "a b", "a\nb", "é", ""]

    monkeypatch.setattr(candidates, "_ask", named_oddly)
    context = Typed({each.name: SimpleNamespace(value=None) for each in fields(Connection)})
    assert candidates.urls_of_services(context) == [
        "mdp://127.0.0.1:1/orders.price",
        "mdp://127.0.0.1:1/é",
    ]


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_installing_twice_changes_the_startup_file_once_and_keeps_its_content(shell, home):
    file = home / SHELLS[shell][0]
    file.write_text("alias ll='ls -l'")  # no line break at its end
    environment = {"HOME": str(home), "ZDOTDIR": "", "ZSH": "", "ZSH_CUSTOM": ""}
    for _ in range(2):
        ended = requite("--install-completion", "--shell", shell, env=environment)
        assert (ended.code, ended.err) == (0, "")
    lines = file.read_text().splitlines()
    assert lines[0] == "alias ll='ls -l'"
    assert lines.count("# Load requite completion") == 1


def test_an_undetected_shell_must_be_named(home):
    environment = {"HOME": str(home), "SHELL": "", "PATH": str(home)}
    ended = requite("--install-completion", env=environment)
    assert (ended.code, ended.out) == (ExitCode.USAGE, "")
    assert "--shell with one of bash, zsh, fish" in ended.err


def test_a_home_that_cannot_be_written_to_is_reported(tmp_path):
    (tmp_path / "home").touch()
    environment = {"HOME": str(tmp_path / "home")}
    ended = requite("--install-completion", "--shell", "fish", env=environment)
    assert (ended.code, ended.out) == (ExitCode.USAGE, "")
    assert "cannot write" in ended.err
    assert str(tmp_path / "home") in ended.err
