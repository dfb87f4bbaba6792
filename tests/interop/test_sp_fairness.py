"""Fairness (I8), counted: among services and among clients, while they connect and disconnect."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial

import pytest
from tests.support import sp_nng
from tests.support.live import eventually
from tests.support.sp_hand import BOTTOM, REP, HandPeer, Hands, deep, tags
from tests.support.sp_live import WAIT_S, Loop
from tests.support.sp_nng import Nng, NngRep
from tests.support.sp_wires import IPC, TCP, WS, Place, Places

import requite

pytestmark = pytest.mark.interop

ROUNDS = 20


class Services:
    """nng services that count their requests, behind a client or device that distributes them.

    `ask` makes one call; `connected` returns the number of connected services.
    """

    def __init__(
        self, nng: Nng, ask: Callable[[], object], back: Place, connected: Callable[[], int]
    ) -> None:
        self._nng = nng
        self._back = back
        self.ask = ask
        self._connected = connected
        self.reps: list[NngRep] = []

    def join(self) -> NngRep:
        """Add a service that dials; return after its first request."""
        rep = self._nng.rep()
        sp_nng.dial(rep.socket, self._back)
        self.reps.append(rep)

        def asked() -> list[bytes]:
            self.ask()
            return rep.requests

        eventually(asked, "the newcomer is asked")
        return rep

    def leave(self, rep: NngRep) -> None:
        """Remove a service; return once the client or device has noticed."""
        self.reps.remove(rep)
        rep.close()
        eventually(lambda: self._connected() == len(self.reps), "it is forgotten")

    def counts(self, n: int) -> list[int]:
        """Make `n` calls; return how many of them each service got."""
        before = [len(rep.requests) for rep in self.reps]
        for _ in range(n):
            self.ask()
        return [len(rep.requests) - n for rep, n in zip(self.reps, before, strict=True)]


@pytest.fixture(params=["client", "device"])
def services(request: pytest.FixtureRequest, nng: Nng, loop: Loop, places: Places) -> Services:
    """Services that dial requite's client, or a device that nng's client uses."""
    back = places.new()
    if request.param == "client":
        client = loop.client(bind=[back.listening()])
        place = back.as_told(str(client.addresses[0]))
        engine = client._shell.host.engine
        n_connected = partial(loop.call, lambda: engine.snapshot().channels)
        return Services(nng, lambda: loop.ask(client, b"x"), place, n_connected)
    front = places.new()
    device = loop.device(front=[front.listening()], back=[back.listening()])
    req = nng.req()
    sp_nng.dial(req.socket, front.as_told(str(device.front_addresses[0])))
    place = back.as_told(str(device.back_addresses[0]))
    n_connected = partial(loop.call, lambda: device.snapshot().back)
    return Services(nng, lambda: req.ask(b"x"), place, n_connected)


# --- among services -------------------------------------------------------------------------------
def test_requests_go_round_while_services_come_and_go(services: Services) -> None:
    for n in range(1, 5):
        services.join()
        assert services.counts(n * ROUNDS) == [ROUNDS] * n
    for n in range(3, 0, -1):
        services.leave(services.reps[n // 2])
        assert services.counts(n * ROUNDS) == [ROUNDS] * n


def test_who_stays_gets_as_much_as_the_others_that_stay(services: Services) -> None:
    """One service connects and disconnects repeatedly, each time after an odd number of calls."""
    for _ in range(3):
        services.join()
    before = [len(rep.requests) for rep in services.reps]
    for calls in range(1, 12):
        guest = services.join()
        services.counts(calls)
        services.leave(guest)
        services.counts(calls // 2)
    counts = [len(rep.requests) - n for rep, n in zip(services.reps, before, strict=True)]
    assert max(counts) - min(counts) <= 2


def test_two_devices_before_the_same_services_are_fair_together(
    nng: Nng, loop: Loop, places: Places
) -> None:
    """A mesh: the client distributes among devices, and each device among all services."""
    reps = [nng.rep() for _ in range(3)]
    backs = [sp_nng.listen(rep.socket, places.new()).dialling() for rep in reps]
    fronts, devices = [], []
    for _ in range(2):
        front = places.new()
        devices.append(loop.device(front=[front.listening()], connect_back=backs))
        fronts.append(front.as_told(str(devices[-1].front_addresses[0])))
    client = loop.client(*fronts)

    def all_there() -> bool:
        loop.ask(client, b"warm-up")
        tables = [loop.call(device.snapshot) for device in devices]
        return all(table.back == len(reps) and table.requests for table in tables)

    eventually(all_there, "both devices are used, and connected to all services")
    before = [len(rep.requests) for rep in reps]
    for _ in range(6 * ROUNDS):
        loop.ask(client, b"x")
    counts = [len(rep.requests) - n for rep, n in zip(reps, before, strict=True)]
    assert counts == [2 * ROUNDS] * 3


# --- configured priorities and weights ------------------------------------------------------------
def test_a_lower_priority_waits_until_the_higher_one_is_gone(
    nng: Nng, loop: Loop, places: Places
) -> None:
    first, second = nng.rep(), nng.rep()
    near = sp_nng.listen(first.socket, places.new())
    far = sp_nng.listen(second.socket, places.new(IPC))
    client = requite.AsyncClient([near.dialling(priority="1"), far.dialling(priority="2")])
    try:
        eventually(lambda: loop.ask(client, b"x") and first.requests, "the near one is connected")
        before = len(second.requests)
        for _ in range(ROUNDS):
            loop.ask(client, b"x")
        assert len(second.requests) == before
        first.close()
        for _ in range(ROUNDS):
            loop.ask(client, b"x")
        assert len(second.requests) == before + ROUNDS
    finally:
        loop.do(client.close())


def test_weights_share_in_proportion(nng: Nng, loop: Loop, places: Places) -> None:
    reps = [nng.rep() for _ in range(3)]
    urls = [
        sp_nng.listen(rep.socket, places.new(wire)).dialling(weight=weight)
        for rep, wire, weight in zip(reps, (TCP, IPC, WS), ("1", "3", "6"), strict=True)
    ]
    client = requite.AsyncClient(urls)

    def all_there() -> bool:
        loop.ask(client, b"warm-up")
        return all(rep.requests for rep in reps)

    try:
        eventually(all_there, "all services are connected")
        before = [len(rep.requests) for rep in reps]
        for _ in range(10 * ROUNDS):
            loop.ask(client, b"x")
    finally:
        loop.do(client.close())
    counts = [len(rep.requests) - n for rep, n in zip(reps, before, strict=True)]
    for count, share in zip(counts, (ROUNDS, 3 * ROUNDS, 6 * ROUNDS), strict=True):
        assert abs(count - share) <= 2


# --- among clients --------------------------------------------------------------------------------
class Gate:
    """A service that holds its requests until it is opened, and records their order."""

    def __init__(self) -> None:
        self.begun: list[bytes] = []
        self._open = asyncio.Event()

        @requite.service("gate")
        async def serve(request: requite.Request) -> bytes:
            await self._open.wait()
            self.begun.append(request.body)
            return request.body

        self.service = serve

    def open(self) -> None:
        """Release all requests; call it on the event loop."""
        self._open.set()


def test_a_flood_from_one_client_does_not_hold_up_the_others(
    loop: Loop, hands: Hands, places: Places
) -> None:
    """Clients take turns, even if all requests of the first one arrived first."""
    gate = Gate()
    place = loop.listening_worker(places.new(), service=gate.service, capacity=1)
    clients = {name: hands.client(place) for name in (b"flood", b"b", b"c")}
    per_client = {b"flood": 10 * ROUNDS, b"b": ROUNDS, b"c": ROUNDS}
    for name, client in clients.items():
        for number in range(per_client[name]):
            client.send(tags(BOTTOM | number) + name)
        _wait_until_read(loop)
    loop.call(gate.open)
    for name, client in clients.items():
        for number in range(per_client[name]):
            assert client.receive() == tags(BOTTOM | number) + name
    turns = gate.begun[: 3 * ROUNDS]
    for n in range(3, len(turns)):
        counts = Counter(turns[:n])
        assert max(counts.values()) - min(counts[name] for name in clients) <= 2, turns
    assert Counter(gate.begun) == per_client


def _wait_until_read(loop: Loop) -> None:
    """Run the loop until it has read and handled the input that is in its sockets."""
    for _ in range(3):
        loop.call(int)


def test_a_flood_from_one_client_does_not_hold_up_the_others_behind_a_device(
    loop: Loop, hands: Hands, places: Places
) -> None:
    """The return path is full when the second client connects; from then on both get their share.

    Turns are not strict: a client without data in the device's socket is skipped.
    """
    listener = hands.listen(places.new())
    front = places.new()
    device = loop.device(front=[front.listening()], connect_back=[listener.place.dialling()])
    place = front.as_told(str(device.front_addresses[0]))
    service = hands.keep(listener.accept()).greet(REP)
    sent = [_fill(hands.client(place), deep(1) + bytes(60_000)) for _ in range(2)]
    channels = [service.receive()[:4] for _ in range(sum(sent))]
    second = next(channel for channel in channels if channel != channels[0])
    turns = channels[channels.index(second) :]
    n_both = 2 * min(Counter(turns).values())
    assert n_both >= 8
    for n in range(2, n_both):
        counts = Counter(turns[:n])
        assert abs(2 * counts[second] - n) <= max(4, n // 2), turns


def _fill(client: HandPeer, payload: bytes) -> int:
    """Send until the socket accepts nothing for a while; return the number of complete messages."""
    data = client.frame(payload)
    sent = 0
    client.socket.setblocking(False)
    while not client.is_stuck(0.2):
        sent += client.socket.send(data[sent % len(data) :])
    return sent // len(data)


def test_a_stream_of_false_replies_does_not_hold_up_the_true_ones(
    loop: Loop, hands: Hands, places: Places
) -> None:
    near, far = places.new(), places.new()
    client = loop.client(bind=[near.listening(priority="1"), far.listening(priority="2")])
    near, far = (
        place.as_told(str(told)) for place, told in zip((near, far), client.addresses, strict=True)
    )
    good, chatty = hands.service(near), hands.service(far)
    flood = chatty.frame(deep(1) + b"nobody asked for it") * 1000
    ended = threading.Event()

    def chatter() -> None:
        while not ended.is_set():
            chatty.write(flood)

    thread = threading.Thread(target=chatter)
    thread.start()
    try:
        for _ in range(ROUNDS):
            call = loop.begin(client.call(b"x"))
            good.send(good.receive())
            assert call.result(WAIT_S).body == b"x"
    finally:
        ended.set()
        thread.join(WAIT_S)
