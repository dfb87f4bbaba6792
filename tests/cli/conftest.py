"""A broker with the example services, shared by the tests of a module, and refused commands."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import pytest
from tests.cli.command import requite, running_broker, running_worker

from requite.cli import main
from requite.cli.exit_codes import ExitCode

Refusal = Callable[..., str]

EXAMPLES = ("echo", "count", "fail", "slow")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The URL of a broker whose services are `EXAMPLES`."""
    with running_broker() as (_broker, url):
        targets = [f"requite.examples:{name}" for name in EXAMPLES]
        with running_worker(*targets, "--connect", url):
            for name in EXAMPLES:  # `call` waits until there is a worker
                assert requite("call", f"{url}/{name}", "0", "--timeout", "20").code in (0, 1)
            yield url


@pytest.fixture
def refusal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Refusal]:
    """A function that runs the command in this process, expects a usage error, and returns stderr.

    This is much faster than a child process. The logging handlers are restored afterwards.
    """
    root, monitored = logging.getLogger(), logging.getLogger("requite")
    before = root.handlers[:], root.level, monitored.level
    monkeypatch.delenv("REQUITE_CREDENTIALS_FILE", raising=False)

    def refuse(*words: str) -> str:
        assert main(words) == ExitCode.USAGE
        out, err = capsys.readouterr()
        assert out == ""
        return err

    yield refuse
    root.handlers[:] = before[0]
    root.setLevel(before[1])
    monitored.setLevel(before[2])
