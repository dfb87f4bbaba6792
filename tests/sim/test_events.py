"""Events of a run: a checker cannot wait for an event that never comes."""

from __future__ import annotations

from pathlib import Path

import pytest

import requite.sim
from requite.sim.kernel import history
from requite.sim.kernel.history import EVENTS, Checker, History
from requite.sim.kernel.world import World

SOURCES = [
    file.read_text("utf-8")
    for file in Path(requite.sim.__file__).parent.rglob("*.py")
    if file != Path(history.__file__)
]


def test_a_checker_with_a_method_for_an_unknown_event_is_refused() -> None:
    with pytest.raises(TypeError, match="there is no such event"):

        class Blind(Checker):
            def request_lost(self) -> None:
                """Hear an event that nobody reports."""


def test_an_unknown_event_is_refused() -> None:
    with pytest.raises(KeyError, match="request_lost"):
        History(World(1), ()).tell("request_lost")


@pytest.mark.parametrize("event", EVENTS)
def test_each_event_is_reported_somewhere(event: str) -> None:
    own = Path(history.__file__).read_text("utf-8")
    assert f'tell("{event}"' in own or any(f'"{event}"' in source for source in SOURCES)
