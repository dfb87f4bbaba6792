"""`Request.principal` of workers that listen themselves, and of workers at RabbitMQ."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.amqp_responder import servant

from requite.core.machine import Machine
from requite.engine import Deliver, DeliverAll, Finished, PeerJoined, Received
from requite.principal import Principal
from requite.protocols.freelance.server import FreelanceServer
from requite.protocols.pirate.server import PirateServer
from requite.protocols.scalability.rep import ScalabilityWorker

SP_REQUEST = b"\x80\0\0\1"


def freelance() -> tuple[Machine, list[bytes]]:
    return FreelanceServer(service="echo"), [b"\0\0\0\1\0\0\0\1", b"hi"]


def pirate() -> tuple[Machine, list[bytes]]:
    return PirateServer(service="echo"), [b"hi"]


def sp() -> tuple[Machine, list[bytes]]:
    return ScalabilityWorker(service="echo", first_id=1), [SP_REQUEST + b"hi"]


def principals(effects: Any) -> list[str]:
    """Return the principals of the delivered requests."""
    names: list[str] = []
    for effect in effects:
        if isinstance(effect, Deliver):
            names.append(effect.what.principal)
        elif isinstance(effect, DeliverAll):
            names += [request.principal for _, request in effect.pairs]
    return names


@pytest.mark.parametrize("make", [freelance, pirate, sp])
def test_requests_have_the_principal_of_their_connection(make: Any) -> None:
    engine, message = make()
    engine.handle([PeerJoined("a", b"a", principal=Principal("tls:CN=ann"))], 1.0)
    engine.handle([PeerJoined("b", b"b", principal=Principal("tls:CN=bob"))], 1.0)
    engine.handle([PeerJoined("c", b"c")], 1.0)
    seen = [principals(engine.handle([Received(peer, [message])], 1.0)) for peer in "abc"]
    assert seen == [["tls:CN=ann"], ["tls:CN=bob"], [""]]


@pytest.mark.parametrize("make", [freelance, sp])
def test_queued_requests_have_the_principal_of_their_connection(make: Any) -> None:
    engine, message = make()
    engine.handle([PeerJoined("a", b"a")], 1.0)
    engine.handle([PeerJoined("b", b"b", principal=Principal("tls:CN=bob"))], 1.0)
    capacity = engine._policy.capacity
    running = list(engine.handle([Received("a", [message] * capacity)], 1.0))
    assert principals(engine.handle([Received("b", [message])], 1.0)) == []
    first = next(
        effect.token if isinstance(effect, Deliver) else effect.pairs[0][0]
        for effect in running
        if isinstance(effect, Deliver | DeliverAll)
    )
    assert principals(engine.handle([Finished(first, (b"ho",))], 1.0)) == ["tls:CN=bob"]


@pytest.mark.parametrize(("user_id", "principal"), [("ann", "amqp:ann"), ("", "")])
def test_rabbitmq_tells_the_user_of_a_request_if_its_client_has_set_it(
    user_id: str, principal: str
) -> None:
    rabbit = servant()
    rabbit.consume()
    _job, request = rabbit.request(b"hi", user_id=user_id)
    assert request.principal == principal
