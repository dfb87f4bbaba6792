"""Settings that every test shares."""

import os
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings
from tests.saved.cases import note_cases
from tests.support import bytecode, limits
from tests.support.rabbit import add_log, allow_time, rabbit, rabbit_server

__all__ = ["rabbit", "rabbit_server"]

bytecode.keep()

# `make test` draws the same examples in every run, so that it says of a tree what it said before;
# `make long` draws fresh ones, and twice as many. A busy machine makes single examples slow without
# anything being wrong, so there is no deadline per example; pytest-timeout bounds the whole test.
_SLOW = [HealthCheck.too_slow]
settings.register_profile(
    "same", derandomize=True, deadline=None, max_examples=50, suppress_health_check=_SLOW
)
settings.register_profile("fresh", print_blob=True, deadline=None, suppress_health_check=_SLOW)
settings.register_profile("thorough", settings.get_profile("fresh"), max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))


def pytest_configure(config: pytest.Config) -> None:
    """Prepare what ends a process that is stuck."""
    limits.begin(config)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what has nng in its process (`scripts/test-nng` runs it), and give time to what has
    processes to start."""
    note_cases(config, items)
    for item in items:
        allow_time(item)
        limits.set_limit(item)
        names = vars(getattr(item, "module", None) or object)
        if {"sp_nng", "Nng", "nng"} & names.keys():
            item.add_marker("nng")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Watch the setup."""
    limits.watch(item)


def pytest_runtest_call(item: pytest.Item) -> None:
    """Watch the test."""
    limits.watch(item)


def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Watch the teardown."""
    limits.watch(item)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what the tests have cost."""
    limits.summary(terminalreporter)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show what RabbitMQ has said where a test with it fails."""
    report = yield
    add_log(item, report)
    return report
