"""No test with a foreign peer is lost: see `tests/saved`."""

from __future__ import annotations

import pytest
from tests.saved.cases import INTEROP, collected_cases, lost_cases
from tests.saved.names import saved


def test_no_case_is_lost(pytestconfig: pytest.Config) -> None:
    if any("::" in argument for argument in pytestconfig.args):
        pytest.skip("single tests were asked for, not whole files")
    lost = lost_cases(saved(INTEROP), collected_cases(pytestconfig), pytestconfig.rootpath)
    assert not lost, f"remove from tests/saved/{INTEROP}.txt by hand what is given up on purpose"
