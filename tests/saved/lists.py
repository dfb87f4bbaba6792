"""Functions that return the current names, by list. pytest collects the names of interop tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from tests.sim.checkers import checkers
from tests.spec.requirement import requirements
from tests.transcripts.play import names

from requite.sim.scenarios import SCENARIOS

LISTS: Final[dict[str, Callable[[], Iterable[str]]]] = {
    "conformance-ids": requirements,
    "transcripts": names,
    "scenarios": lambda: SCENARIOS,
    "checkers": checkers,
}
