"""The order in which requests for one service are dispatched: clients in turn (I8)."""

from __future__ import annotations

from math import inf

from requite.chronicle import NO_CALL
from requite.engine import PeerJoined
from requite.protocols.majordomo.dialects import by_version
from requite.protocols.majordomo.parties import Client, Newcomer, PendingRequest, Service
from requite.protocols.majordomo.queue import ServiceQueue

_SERVICE = Service(b"echo")


def _client(name: str) -> Client:
    joined = Newcomer(PeerJoined(name, name.encode()))
    return Client(name, joined, by_version("0.3"), b"original", 1.0)


def _request(client: Client, number: int, attempts: int = 0) -> PendingRequest:
    request = PendingRequest(client, _SERVICE, number, [b""], inf, 0, b"", NO_CALL, 0.0)
    request.attempts = attempts
    return request


def _take_all(queue: ServiceQueue) -> list[tuple[bytes, int]]:
    taken = []
    while queue.length:
        request = queue.pop()
        taken.append((request.client.address, request.request_id))
    return taken


def test_clients_are_served_in_turn_regardless_of_their_queues():
    queue = ServiceQueue()
    a, b = _client("a"), _client("b")
    for request in (_request(a, 1), _request(a, 2), _request(a, 3), _request(b, 1)):
        queue.push(request)
    assert _take_all(queue) == [(b"a", 1), (b"b", 1), (b"a", 2), (b"a", 3)]


def test_redelivered_requests_go_first_and_use_no_turn():
    queue = ServiceQueue()
    a, b = _client("a"), _client("b")
    queue.push(_request(a, 2))
    queue.push(_request(b, 1))
    queue.push_front(_request(b, 8, attempts=1))
    queue.push_front(_request(b, 7, attempts=1))
    assert [request.request_id for request in queue] == [7, 8, 2, 1]
    assert _take_all(queue) == [(b"b", 7), (b"b", 8), (b"a", 2), (b"b", 1)]


def test_removing_a_redelivered_request_gives_its_client_no_turn():
    queue = ServiceQueue()
    a, b = _client("a"), _client("b")
    back = _request(b, 7, attempts=1)
    for request in (_request(a, 1), _request(b, 1), _request(b, 2)):
        queue.push(request)
    queue.push_front(back)
    queue.remove(back)
    assert _take_all(queue) == [(b"a", 1), (b"b", 1), (b"b", 2)]


def test_an_expired_request_uses_no_turn_of_its_client():
    queue = ServiceQueue()
    a, b = _client("a"), _client("b")
    for request in (_request(a, 1), _request(a, 2), _request(b, 1)):
        queue.push(request)
    expired = queue.pop()
    queue.return_turn(expired)
    assert _take_all(queue) == [(b"a", 2), (b"b", 1)]


def test_a_redelivered_request_has_no_turn_to_return():
    queue = ServiceQueue()
    a, b = _client("a"), _client("b")
    queue.push(_request(a, 1))
    queue.push(_request(b, 1))
    queue.push_front(_request(b, 7, attempts=1))
    queue.return_turn(queue.pop())
    assert _take_all(queue) == [(b"a", 1), (b"b", 1)]


def test_requests_that_were_put_off_go_last_and_the_newest_of_them_first():
    queue = ServiceQueue()
    a, b = _client("a"), _client("b")
    for number in (1, 2, 3):
        queue.push(_request(a, number))
    for _ in range(2):
        queue.put_off(queue.pop())
    queue.push(_request(b, 1))
    assert queue.length == 4
    assert [request.request_id for request in queue] == [3, 1, 2, 1]
    assert _take_all(queue) == [(b"a", 3), (b"b", 1), (b"a", 2), (b"a", 1)]
    assert not queue.has_turns


def test_a_request_that_was_put_off_can_be_removed():
    queue = ServiceQueue()
    a = _client("a")
    queue.push(_request(a, 1))
    late = queue.pop()
    queue.put_off(late)
    assert not queue.has_turn(a)
    queue.remove(late)
    assert queue.length == 0
