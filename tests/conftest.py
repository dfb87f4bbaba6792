"""Settings, hooks and fixtures of all tests."""

import os
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings
from tests.saved.cases import note_cases
from tests.support import bytecode, forks, limits
from tests.support.rabbit import add_log, allow_time, rabbit, rabbit_server

__all__ = ["rabbit", "rabbit_server"]

bytecode.keep()

# `make test` draws the same examples in every run, so its results are reproducible. `make long`
# draws fresh examples, and twice as many. Single examples may be slow on a busy machine, so
# examples have no deadline; pytest-timeout limits the whole test.
_SLOW = [HealthCheck.too_slow]
settings.register_profile(
    "same", derandomize=True, deadline=None, max_examples=50, suppress_health_check=_SLOW
)
settings.register_profile("fresh", print_blob=True, deadline=None, suppress_health_check=_SLOW)
settings.register_profile("thorough", settings.get_profile("fresh"), max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))


def pytest_configure(config: pytest.Config) -> None:
    """Set up the watchdog for tests that hang."""
    limits.begin(config)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests that load nng, which `scripts/test-nng` runs, and raise the time limits of
    tests that start processes."""
    note_cases(config, items)
    for item in items:
        allow_time(item)
        limits.set_limit(item)
        names = vars(getattr(item, "module", None) or object)
        if {"sp_nng", "Nng", "nng"} & names.keys():
            item.add_marker("nng")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Restart the watchdog for the setup."""
    limits.watch(item)


def pytest_runtest_call(item: pytest.Item) -> None:
    """Restart the watchdog for the test itself."""
    limits.watch(item)


def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Restart the watchdog for the teardown."""
    limits.watch(item)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish() -> None:
    """Stop the watchdog, and the process that forks commands."""
    limits.end()
    forks.end()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the CPU time of the run."""
    limits.summary(terminalreporter)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the end of RabbitMQ's log to the report of a failed test that uses it."""
    report = yield
    add_log(item, report)
    return report
