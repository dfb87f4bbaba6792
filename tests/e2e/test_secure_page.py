"""The commands of "Secure a broker", run as printed except for the port."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.page_steps import Terminals, files, steps

from requite.testing.processes import free_ports

_ID = re.compile(r"\b[0-9a-f]{32}\b")  # differs each time

pytestmark = pytest.mark.e2e

PAGE = Path(__file__).parents[2] / "docs/how-to/secure-a-broker.md"


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
            told, wanted = (_ID.sub("", text).rstrip("\n") for text in (printed, expected))
            assert told == wanted
        else:
            assert "requite: " not in printed
    assert programs == [
        *["keys"] * 4,
        *("chmod", "access"),
        *("broker", "worker"),
        *["call"] * 3,
        *("keys", "mv", "keys"),
    ]
