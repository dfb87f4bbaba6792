"""No test with a foreign peer gets lost: see `tests/saved`."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.saved.cases import INTEROP, collected_cases
from tests.saved.names import differences

FOLDER = Path(__file__).parent


def test_the_list_has_the_cases_that_there_are(pytestconfig: pytest.Config) -> None:
    asked = [Path(argument).resolve() for argument in pytestconfig.args]
    if not any(FOLDER.is_relative_to(place) for place in asked):
        pytest.skip("not the whole folder was asked for")
    there = {case for case in collected_cases(pytestconfig) if case.startswith("tests/interop/")}
    assert differences(INTEROP, there) == []
