"""The memory of idle clients and workers in engines."""

from __future__ import annotations

import sys
from collections import deque

from tests.support.broker import BrokerBench

from requite.core.turns import ClientPeer, Turns
from requite.principal import Credential
from requite.protocols.majordomo.parties import Client
from requite.protocols.majordomo.wire import ClientRequest
from requite.shell.owners import unrestricted

_EMPTY_DEQUE = sys.getsizeof(deque())


def test_an_idle_client_of_a_broker_has_no_backlog_of_its_own() -> None:
    bench = BrokerBench()
    bench.client("c")
    bench.say("c", ClientRequest, b"mmi.ping", [b""], 1)
    client = bench.broker.parties["c"]
    assert isinstance(client, Client)
    assert sys.getsizeof(client.backlog) < _EMPTY_DEQUE / 4


def test_a_client_has_a_queue_only_while_requests_wait() -> None:
    turns: Turns[ClientPeer] = Turns(4, 100)
    client = ClientPeer("peer")
    turns.join(client)
    assert (client.waiting, client.queued) == (None, 0)
    turns.push(client, "a request", 1)
    assert client.queued == turns.waiting == 1
    assert turns.pop() == (client, "a request")
    assert (client.waiting, client.queued) == (None, 0)
    turns.push(client, "a request", 1)
    assert turns.clear() == 1
    assert (client.waiting, turns.waiting) == (None, 0)


def test_connections_with_one_credential_share_a_principal() -> None:
    first, second, other = (
        unrestricted(Credential("plain", (name,)), "a peer", None) for name in ("ann", "ann", "bob")
    )
    assert first is second
    assert (first.name, other.name) == ("plain:ann", "plain:bob")
