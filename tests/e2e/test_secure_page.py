"""The commands of "Secure a broker", run as printed except for the port."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.cli.command import ENVIRONMENT, WAIT_S

from requite.testing.processes import free_ports

pytestmark = pytest.mark.e2e

PAGE = Path(__file__).parents[2] / "docs/how-to/secure-a-broker.md"
COMMAND = Path(sys.executable).with_name("requite")
SERVERS = ("broker", "worker")


class Step(NamedTuple):
    """A command of the page, and the output that is printed below it."""

    words: list[str]
    output: str


def steps(text: str) -> Iterator[Step]:
    """Yield the commands of the console blocks of a page."""
    for block in re.findall(r"```console\n(.*?)```", text, flags=re.DOTALL):
        for part in block.split("$ ")[1:]:
            line, _, output = part.partition("\n")
            yield Step(shlex.split(line), output)


def files(text: str) -> Iterator[tuple[str, str]]:
    """Yield the files of a page: name and text. The first line of each is a comment with the
    name."""
    for block in re.findall(r"```toml\n(.*?)```", text, flags=re.DOTALL):
        yield block.partition("\n")[0].removeprefix("# "), block


class Terminals:
    """Runs commands in a folder. Those that serve remain until `close`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._serving: list[subprocess.Popen[str]] = []

    def write(self, name: str, text: str) -> None:
        """Write a file."""
        (self._folder / name).write_text(text)

    def run(self, words: list[str]) -> str:
        """Return what a command prints; of one that serves, the first line."""
        program = str(COMMAND) if words[0] == "requite" else words[0]
        command = [program, *words[1:]]
        if words[1] in SERVERS:
            return self._serve(command)
        done = subprocess.run(
            command,
            cwd=self._folder,
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
        return done.stdout + done.stderr

    def _serve(self, command: list[str]) -> str:
        process = subprocess.Popen(
            command, cwd=self._folder, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True
        )
        self._serving.append(process)
        assert process.stdout is not None
        return process.stdout.readline()

    def close(self) -> None:
        for process in reversed(self._serving):
            process.terminate()
            process.communicate(timeout=WAIT_S)


@pytest.fixture
def terminals(tmp_path: Path) -> Iterator[Terminals]:
    terminals = Terminals(tmp_path)
    yield terminals
    terminals.close()


def test_the_commands_work_as_printed(terminals: Terminals) -> None:
    [port] = free_ports(1)
    text = PAGE.read_text().replace(":5555", f":{port}")
    for name, content in files(text):
        terminals.write(name, content)
    programs = []
    for words, expected in steps(text):
        if words[0] == "pip":
            continue
        programs.append(words[0] if words[0] != "requite" else words[1])
        # The advice of `requite keys new` names the usual port.
        printed = terminals.run(words).replace(":5555", f":{port}")
        if expected.startswith("requite: no reply"):
            assert printed.startswith("requite: no reply from 'echo' within 2")
            assert "the peer refused TLS: certificate required" in printed
        elif expected:
            assert printed.rstrip("\n") == expected.rstrip("\n")
        else:
            assert "requite: " not in printed
    assert programs == [
        *["keys"] * 4,
        *("chmod", "access"),
        *("broker", "worker"),
        *["call"] * 3,
        *("keys", "mv", "keys"),
    ]
