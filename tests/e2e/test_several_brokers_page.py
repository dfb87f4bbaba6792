"""The commands and the program of "Run several brokers", run as printed except for the ports."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.page_steps import Terminals, steps

from requite.testing.processes import free_ports

pytestmark = pytest.mark.e2e

PAGE = Path(__file__).parents[2] / "docs/how-to/run-several-brokers.md"
PROGRAM = "program.py"


@pytest.fixture
def terminals(tmp_path: Path) -> Iterator[Terminals]:
    terminals = Terminals(tmp_path)
    yield terminals
    terminals.close()


def _page() -> tuple[str, list[int]]:
    ports = free_ports(2)
    text = PAGE.read_text()
    for usual, port in zip((5555, 5556), ports, strict=True):
        text = text.replace(f"127.0.0.1:{usual}", f"127.0.0.1:{port}")
    return text, ports


def _follow(terminals: Terminals, text: str) -> list[str]:
    """Run the commands, check what they print, and return which they were."""
    programs = []
    for words, expected in steps(text):
        programs.append(words[1])
        assert terminals.run(words).rstrip() == expected.rstrip()
    return programs


def test_the_commands_and_the_program_work_as_printed(terminals: Terminals) -> None:
    text, _ = _page()
    assert _follow(terminals, text) == ["broker"] * 2 + ["worker"] * 2 + ["call"] * 2
    [program] = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    terminals.write(PROGRAM, program)
    assert terminals.run(["python", PROGRAM]) == "b'hello, world'\n"


def test_a_killed_broker_does_not_affect_the_other(terminals: Terminals) -> None:
    text, ports = _page()
    _follow(terminals, text)
    terminals.stop(0)
    url = f"mdp://127.0.0.1:{ports[1]}/echo"
    assert terminals.run(["requite", "call", url, "hello, world"]) == "hello, world"
