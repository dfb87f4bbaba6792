"""Commands and files of a page, run as printed."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from tests.cli.command import ENVIRONMENT, WAIT_S

COMMAND = Path(sys.executable).with_name("requite")
SERVERS = (["broker"], ["worker"], ["gateway"], ["pool", "run"])


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
    """Runs commands in a folder, with more variables in their environment. Those that serve remain
    until `close`; each other one may take `within_s`."""

    def __init__(
        self,
        folder: Path,
        environment: Mapping[str, str] = MappingProxyType({}),
        within_s: float = WAIT_S,
    ) -> None:
        self._folder = folder
        self._within_s = within_s
        self._environment = {**ENVIRONMENT, **environment}
        self._serving: list[subprocess.Popen[str]] = []

    def write(self, name: str, text: str) -> None:
        """Write a file."""
        (self._folder / name).write_text(text)

    def run(self, words: list[str], lines: int = 1) -> str:
        """Return what a command prints; of one that serves, the first lines."""
        program = {"requite": str(COMMAND), "python": sys.executable}.get(words[0], words[0])
        command = [program, *words[1:]]
        if words[0] == "requite" and any(words[1 : 1 + len(verb)] == verb for verb in SERVERS):
            return self._serve(command, lines)
        done = subprocess.run(
            command,
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=self._within_s,
            check=False,
        )
        return done.stdout + done.stderr

    def _serve(self, command: list[str], lines: int) -> str:
        process = subprocess.Popen(
            command, cwd=self._folder, env=self._environment, stdout=subprocess.PIPE, text=True
        )
        self._serving.append(process)
        assert process.stdout is not None
        return "".join(process.stdout.readline() for _ in range(lines))

    def stop(self, number: int) -> None:
        """Kill the server that was started as the given number."""
        process = self._serving.pop(number)
        process.kill()
        process.communicate(timeout=self._within_s)

    def close(self) -> None:
        """End the servers, the last one first."""
        for process in reversed(self._serving):
            process.terminate()
            process.communicate(timeout=self._within_s)
