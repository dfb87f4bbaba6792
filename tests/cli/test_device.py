"""`requite device`: its addresses, what it forwards, and how it exits."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from tests.cli.command import WAIT_S, requite, running
from tests.cli.conftest import Refusal
from tests.support import sp_nng
from tests.support.sp_nng import Nng, nng
from tests.support.sp_wires import IPC, TLS, WS, Place, Places, certificates, places

from requite import CallTimeout, Client
from requite.cli.exit_codes import ExitCode

__all__ = ["certificates", "nng", "places"]

pytestmark = pytest.mark.e2e

ANY = "sp+tcp://127.0.0.1:0"


def ask(url: str, timeout: float = WAIT_S) -> bytes:
    """Make a call from this process; return the body of the reply."""
    with Client(url) as client:
        return client.call(b"x", timeout=timeout).body


@pytest.fixture
def service(places: Places, nng: Nng) -> Iterator[Place]:
    """An echo service of nng."""
    return sp_nng.listen(nng.rep().socket, places.new(IPC))


def test_it_prints_its_addresses_and_forwards_requests(service: Place) -> None:
    with running("device", "--front", ANY, "--back", service.dialling()) as device:
        front = device.line().removeprefix("listening on ").removesuffix(" for clients")
        assert front.startswith("sp+tcp://127.0.0.1:")
        assert device.line() == f"connecting to {service.dialling()} for services"
        assert requite("call", front, "hello").stdout == b"hello"
        device.send(signal.SIGTERM)
        assert device.end() == (ExitCode.OK, "", "")


def test_services_may_connect_to_it(places: Places) -> None:
    back = places.new(IPC)
    with (
        running("device", "--front", ANY, "--back-bind", back.listening()) as device,
        running("worker", "requite.examples:echo", "--connect", back.dialling()),
    ):
        front = device.line().split()[2]
        assert device.line() == f"listening on {back.dialling()} for services"
        assert ask(front) == b"x"
        device.send(signal.SIGINT)
        assert device.end()[0] == ExitCode.OK


def test_it_may_connect_to_clients_that_listen(places: Places, service: Place) -> None:
    front = places.new(IPC)
    words = ("--front-connect", front.dialling(), "--back", service.dialling())
    with (
        running("device", *words) as device,
        running("call", front.listening(), "hello", "--bind") as call,
    ):
        assert device.line() == f"connecting to {front.dialling()} for clients"
        assert call.end()[:2] == (0, "hello")


def test_several_addresses_of_different_transports(
    places: Places, service: Place, nng: Nng
) -> None:
    """Options take several values, or are repeated."""
    other = sp_nng.listen(nng.rep().socket, places.new(WS))
    tls, web = places.new(TLS), places.new(WS)
    fronts = ("--front", tls.listening(), "--front", web.listening())
    backs = ("--back", service.dialling(), other.dialling())
    with running("device", *fronts, *backs) as device:
        for place in (tls, web):
            url = place.as_told(device.line().split()[2]).dialling()
            assert ask(url) == b"x"
        assert [device.line().split()[2] for _ in range(2)] == [*backs[1:]]


def test_hops_limits_the_length_of_a_chain_of_devices(service: Place) -> None:
    """The first device adds the second tag to a request, the next a third; the last drops it."""
    words = ("--front", ANY, "--hops", "3", "--back")
    with running("device", *words, service.dialling()) as last:
        place = last.line().split()[2]
        with running("device", *words, place) as middle:
            place = middle.line().split()[2]
            assert ask(place) == b"x"
            with running("device", *words, place) as first, pytest.raises(CallTimeout):
                ask(first.line().split()[2], timeout=0.5)


@pytest.mark.parametrize("side", ["--front", "--back-bind"])
def test_an_address_in_use_ends_it(side: str, places: Places, nng: Nng) -> None:
    taken = sp_nng.listen(nng.rep().socket, places.new()).listening()
    other = ("--back", taken) if side == "--front" else ("--front", ANY)
    ended = requite("device", side, taken, *other)
    assert (ended.code, ended.out) == (ExitCode.CANNOT_LISTEN, "")
    (line,) = ended.err.splitlines()
    assert "in use" in line


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "--front"),
        (("--front", ANY), "--back"),
        (("--back", "sp+tcp://127.0.0.1:1"), "--front"),
        (("--front", "tcp://127.0.0.1:0", "--back", "sp+tcp://127.0.0.1:1"), "sp+tcp://"),
        (("--front", ANY, "--back", "mdp://127.0.0.1:1"), "SP"),
        (("--front", ANY, "--back", ANY), "listening"),
        (("--front", ANY, "--back", "sp+tcp://127.0.0.1:1", "--hops", "1"), "hops is 2"),
        (("--front", "sp+wss://127.0.0.1:0/x", "--back", "sp+tcp://127.0.0.1:1"), "certificate"),
        (("--front", ANY, "--back", "sp+tls://127.0.0.1:1?ca=/nowhere"), "/nowhere"),
    ],
)
def test_invalid_arguments_are_refused(
    words: tuple[str, ...], message: str, refusal: Refusal
) -> None:
    assert message in refusal("device", *words)
