"""Devices: chains of one and more, of requite and nng, over mixed transports; and loops."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from tests.support import sp_nng
from tests.support.live import eventually
from tests.support.sp_hand import BOTTOM, REP, REQ, Hands, deep, header, tags
from tests.support.sp_live import Loop
from tests.support.sp_nng import Nng
from tests.support.sp_wires import IPC, TCP, TLS, WS, WSS, Place, Places, Wire

import requite

pytestmark = pytest.mark.interop

QUIET_S = 0.15
CALLS = 50


class Chains:
    """Makes devices of either implementation, whose front listens and whose back dials."""

    def __init__(self, nng: Nng, loop: Loop, places: Places) -> None:
        self.nng = nng
        self.loop = loop
        self.places = places

    def device(self, maker: str, back: Place, wire: Wire = TCP, **settings: int) -> Place:
        """Start a device whose back dials a place; return where its front listens."""
        front = self.places.new(wire)
        if maker == "nng":
            device = self.nng.device()
            sp_nng.dial(device.back, back)
            return sp_nng.listen(device.front, front)
        device = self.loop.device(
            front=[front.listening()], connect_back=[back.dialling()], **settings
        )
        return front.as_told(str(device.front_addresses[0]))

    def chain(self, makers: Sequence[str], place: Place, wires: Sequence[Wire] = ()) -> Place:
        """Put devices in front of the service at a place, the last one first; return the front."""
        for maker, wire in zip(reversed(makers), wires or [TCP] * len(makers), strict=True):
            place = self.device(maker, place, wire)
        return place

    def service(self, maker: str, wire: Wire = TCP) -> Place:
        """Start an echo service that listens; return its place."""
        place = self.places.new(wire)
        if maker == "nng":
            return sp_nng.listen(self.nng.rep().socket, place)
        return self.loop.listening_worker(place)

    def assert_works(self, maker: str, place: Place) -> None:
        """Make calls with small and large bodies; check their replies."""
        bodies = [b"%d" % number * (1 + number * 100) for number in range(CALLS)]
        bodies += [b"", bytes(1 << 20)]
        if maker == "nng":
            req = self.nng.req()
            sp_nng.dial(req.socket, place)
            assert [req.ask(body) for body in bodies] == bodies
            return
        client = self.loop.client(place)

        async def ask_all() -> list[bytes]:
            return [reply.body async for reply in client.map(bodies, concurrency=16)]

        assert self.loop.do(ask_all()) == bodies


@pytest.fixture
def chains(nng: Nng, loop: Loop, places: Places) -> Iterator[Chains]:
    """A maker of chains of devices."""
    return Chains(nng, loop, places)


OURS, THEIRS = "requite", "nng"


@pytest.mark.parametrize(
    ("client", "devices", "service"),
    [
        (THEIRS, [OURS], THEIRS),
        (OURS, [THEIRS], OURS),
        (OURS, [OURS], THEIRS),
        (THEIRS, [OURS], OURS),
        (OURS, [OURS], OURS),
        (THEIRS, [OURS, OURS], THEIRS),
        (OURS, [THEIRS, THEIRS], OURS),
        (OURS, [OURS, THEIRS], OURS),
        (OURS, [THEIRS, OURS], OURS),
        (THEIRS, [OURS, THEIRS], THEIRS),
        (THEIRS, [THEIRS, OURS], OURS),
        (OURS, [OURS] * 7, OURS),
        (THEIRS, [OURS, THEIRS] * 3 + [OURS], THEIRS),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_a_chain(client: str, devices: list[str], service: str, chains: Chains) -> None:
    chains.assert_works(client, chains.chain(devices, chains.service(service)))


@pytest.mark.parametrize(
    ("front", "middle", "back"), [(WS, IPC, TCP), (TLS, WS, IPC), (WSS, TLS, WS)], ids=str
)
@pytest.mark.parametrize("client", [OURS, THEIRS])
def test_every_hop_may_have_a_transport_of_its_own(
    client: str, front: Wire, middle: Wire, back: Wire, chains: Chains
) -> None:
    service = chains.service(THEIRS if client == OURS else OURS, back)
    chains.assert_works(client, chains.chain([OURS, OURS], service, [middle, front]))


def test_clients_and_services_may_all_dial_the_device(chains: Chains) -> None:
    front, back = chains.places.new(), chains.places.new(IPC)
    device = chains.loop.device(front=[front.listening()], back=[back.listening()])
    sp_nng.dial(chains.nng.rep().socket, back)
    chains.loop.worker(back)
    chains.assert_works(THEIRS, front.as_told(str(device.front_addresses[0])))


def test_the_device_may_dial_clients_and_services(chains: Chains) -> None:
    """The device's front is a REP, which may dial listening REQs."""
    req = chains.nng.req()
    front = sp_nng.listen(req.socket, chains.places.new())
    back = chains.service(THEIRS)
    chains.loop.device(connect_front=[front.dialling()], connect_back=[back.dialling()])
    assert req.ask(b"x") == b"x"


def test_a_device_shares_its_requests_among_all_services(chains: Chains) -> None:
    reps = [chains.nng.rep() for _ in range(3)]
    backs = [sp_nng.listen(rep.socket, chains.places.new()).dialling() for rep in reps]
    front = chains.places.new()
    device = chains.loop.device(front=[front.listening()], connect_back=backs)
    req = chains.nng.req()
    sp_nng.dial(req.socket, front.as_told(str(device.front_addresses[0])))

    def all_there() -> bool:
        req.ask(b"warm-up")
        return all(rep.requests for rep in reps)

    eventually(all_there, "all services are connected")
    before = [len(rep.requests) for rep in reps]
    for _ in range(30):
        req.ask(b"x")
    assert [len(rep.requests) - n for rep, n in zip(reps, before, strict=True)] == [10, 10, 10]


# --- bytes on the wire ----------------------------------------------------------------------------
def test_the_picture_of_the_draft(chains: Chains, hands: Hands) -> None:
    """Each device pushes the channel's id onto the stack, and pops it from the reply."""
    listener = hands.listen(chains.places.new())
    place = chains.chain([OURS, OURS], listener.place)
    client = hands.client(place)
    service = hands.keep(listener.accept()).greet(REP)
    client.send(tags(BOTTOM | 823) + b"Hello")
    request = service.receive()
    assert len(request) == 4 + 4 + 4 + 5
    assert request[8:] == tags(BOTTOM | 823) + b"Hello"
    assert not (request[0] | request[4]) & 0x80
    service.send(request[:12] + b"World")
    assert client.receive() == tags(BOTTOM | 823) + b"World"


def test_channel_ids_are_random_at_first_and_go_up_by_one(chains: Chains, hands: Hands) -> None:
    firsts = set()
    for _ in range(3):
        listener = hands.listen(chains.places.new())
        place = chains.device(OURS, listener.place)
        service = hands.keep(listener.accept()).greet(REP)
        ids = []
        for _ in range(3):
            hands.client(place).send(deep(1) + b"x")
            ids.append(int.from_bytes(service.receive()[:4], "big"))
        assert ids == [(ids[0] + number) % BOTTOM for number in range(3)]
        firsts.add(ids[0])
    assert len(firsts) == 3


@pytest.mark.parametrize(
    "bad",
    ["empty", "short", "bottom", "nobody", "body only"],
)
def test_a_reply_that_leads_nowhere_is_dropped(bad: str, chains: Chains, hands: Hands) -> None:
    listener = hands.listen(chains.places.new())
    place = chains.device(OURS, listener.place)
    client, service = hands.client(place), hands.keep(listener.accept()).greet(REP)
    client.send(deep(1) + b"x")
    request = service.receive()
    channel = int.from_bytes(request[:4], "big")
    service.send(
        {
            "empty": b"",
            "short": b"abc",
            "bottom": request[4:],
            "nobody": tags((channel + 1) % BOTTOM) + request[4:],
            "body only": b"\xff" * 100,
        }[bad]
    )
    service.send(request)
    assert client.receive() == deep(1) + b"x"


@pytest.mark.parametrize("maker", [OURS, THEIRS])
def test_a_device_adds_no_ninth_tag(maker: str, chains: Chains, hands: Hands) -> None:
    """requite checks before it sends (as in the draft), nng on receipt: one tag later."""
    listener = hands.listen(chains.places.new())
    place = chains.device(maker, listener.place)
    client, service = hands.client(place), hands.keep(listener.accept()).greet(REP)
    for depth in range(1, 12):
        client.send(deep(depth) + b"%d" % depth)
    client.send(deep(1) + b"end")
    seen = []
    while not (request := service.receive()).endswith(b"end"):
        seen.append((len(request) - len(deep(1)) + 3) // 4)
    assert seen == [2, 3, 4, 5, 6, 7, 8] + ([9] if maker == THEIRS else [])


@pytest.mark.parametrize("side", ["front", "back"])
def test_a_stranger_is_hung_up_on(side: str, chains: Chains, hands: Hands) -> None:
    front, back = chains.places.new(), chains.places.new()
    device = chains.loop.device(front=[front.listening()], back=[back.listening()])
    front = front.as_told(str(device.front_addresses[0]))
    back = back.as_told(str(device.back_addresses[0]))
    for said in (header(REP if side == "front" else REQ), header(16), b"\xff" * 30):
        stranger = hands.dial(front if side == "front" else back)
        stranger.write(said)
        assert len(stranger.hung_up()) in (0, 8)
    sp_nng.dial(chains.nng.rep().socket, back)
    chains.assert_works(THEIRS, front)


# --- loops ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("other", [OURS, THEIRS])
def test_a_loop_of_two_devices_settles(other: str, chains: Chains, nng: Nng) -> None:
    """Each device forwards to the other. A service gets at least every second request.

    A circulating request is dropped once its stack is too deep; resending makes up for it.
    """
    rep = nng.rep()
    service = sp_nng.listen(rep.socket, chains.places.new())
    first, second = chains.places.new(IPC), chains.places.new(IPC)
    settings = {"front": [first.listening()]}
    settings["connect_back"] = [second.dialling(), service.dialling()]
    chains.loop.device(**settings)
    if other == OURS:
        chains.loop.device(front=[second.listening()], connect_back=[first.dialling()])
    else:
        device = nng.device()
        sp_nng.listen(device.front, second)
        sp_nng.dial(device.back, first)
    client = chains.loop.client(first, retry=requite.RetryPolicy(attempt_timeout=0.3))
    bodies = [b"%d" % number for number in range(CALLS)]

    async def ask_all() -> list[bytes]:
        return [reply.body async for reply in client.map(bodies, concurrency=8, timeout=20)]

    assert chains.loop.do(ask_all()) == bodies
    eventually(lambda: set(bodies) <= set(rep.requests), "each was served")


def test_a_device_that_forwards_to_itself_settles(chains: Chains, hands: Hands) -> None:
    place = chains.places.new(IPC)
    chains.loop.device(front=[place.listening()], connect_back=[place.dialling()])
    client = hands.client(place)
    for number in range(CALLS):
        client.send(deep(1, number))
    assert client.is_silent(QUIET_S)
