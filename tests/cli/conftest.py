"""A broker and a worker with the example services, shared by the tests of one file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.cli.command import requite, running_broker, running_worker

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
