"""Settings that every test shares."""

import os
from collections.abc import Generator

import pytest
from hypothesis import settings
from tests.support import bytecode
from tests.support.rabbit import add_log, rabbit, rabbit_server

__all__ = ["rabbit", "rabbit_server"]

bytecode.keep()

# A busy machine makes single examples slow without anything being wrong, so there is no deadline
# per example; pytest-timeout bounds the test as a whole. Where CI is set, hypothesis' own profile
# "ci" draws the same examples in every run.
settings.register_profile("local", deadline=None)
settings.register_profile("thorough", deadline=None, max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if "CI" in os.environ else "local"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what has nng in its process (`scripts/test-nng` runs it)."""
    for item in items:
        names = vars(getattr(item, "module", None) or object)
        if {"sp_nng", "Nng", "nng"} & names.keys():
            item.add_marker("nng")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show what RabbitMQ has said where a test with it fails."""
    report = yield
    add_log(item, report)
    return report
