"""The build under test, and tests that only the pure build can pass."""

from __future__ import annotations

from typing import Final

import pytest

import requite

IS_COMPILED: Final = requite.__build__ == "compiled"


def pure_only(reason: str) -> pytest.MarkDecorator:
    """Return a mark that skips a test with a compiled core; `reason` says why."""
    return pytest.mark.skipif(IS_COMPILED, reason=f"compiled: {reason}")


constant_replaced = pure_only("the test replaces a constant, which is compiled into its users")
