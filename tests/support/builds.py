"""Tests that only the pure build can pass."""

from __future__ import annotations

import pytest

import requite


def pure_only(reason: str) -> pytest.MarkDecorator:
    """Return a mark that skips a test with a compiled core; `reason` says why."""
    return pytest.mark.skipif(requite.__build__ == "compiled", reason=f"compiled: {reason}")


constant_replaced = pure_only("the test replaces a constant, which is compiled into its users")
