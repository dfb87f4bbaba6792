"""No server listens beyond this machine unless it is told to."""

from __future__ import annotations

from typing import Any

import pytest
from tests.cli.config_page import VERBS

from requite.broker import DEFAULT_BIND
from requite.cli.app import build
from requite.pool.config import HttpSection
from requite.queue.queue import DEFAULT_BACK, DEFAULT_FRONT

LISTENING = ("--bind", "--front", "--back", "--back-bind", "--pair-bind")


def default_of(verb: str, option: str) -> Any:
    """Return the default of an option of a verb; None without such an option."""
    app: Any = build()
    for word in verb.split():
        app = app[word]
    for argument in app.assemble_argument_collection():
        if option in argument.names:
            return argument.field_info.default
    return None


@pytest.mark.parametrize("verb", VERBS)
def test_no_server_of_the_command_listens_on_a_network_by_default(verb: str) -> None:
    for option in LISTENING:
        for address in default_of(verb, option) or ():
            assert address.startswith("tcp://127.0.0.1:"), (verb, option)


def test_the_broker_and_the_queue_of_the_command_do_listen() -> None:
    assert default_of("broker", "--bind") == (DEFAULT_BIND,)
    assert default_of("queue", "--front") == (DEFAULT_FRONT,)
    assert default_of("queue", "--back") == (DEFAULT_BACK,)


def test_no_server_of_the_library_listens_on_a_network_by_default() -> None:
    for address in (DEFAULT_BIND, DEFAULT_FRONT, DEFAULT_BACK):
        assert address.startswith("tcp://127.0.0.1:")
    assert HttpSection().host == "127.0.0.1"
