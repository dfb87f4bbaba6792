"""Bad input on real sockets over TLS: certificates and handshakes."""

from __future__ import annotations

import socket
import ssl

import pytest
from tests.e2e.sp_scene import (
    SILENCE_S,
    Scene,
    both_loops,
    loop,
    no_leaks,
    scene,
    short_handshake_timeout,
    warm,
    web,
)
from tests.support.patience import failure
from tests.support.sp_hand import Hands, hands
from tests.support.sp_live import WAIT_S, Loop
from tests.support.sp_wires import (
    TCP,
    TLS,
    WSS,
    Place,
    Places,
    Wire,
    certificates,
    places,
)

import requite

__all__ = [
    "certificates",
    "hands",
    "loop",
    "no_leaks",
    "places",
    "scene",
    "short_handshake_timeout",
    "warm",
    "web",
]

pytestmark = pytest.mark.e2e


def fail(loop: Loop, url: str, words: str = "") -> str:
    """Make a call that cannot be sent; return its error text, which must match `words`."""
    client = requite.AsyncClient(url)
    try:
        error = failure(
            requite.CallTimeout,
            words,
            lambda timeout: loop.do(client.call(b"x", timeout=timeout)),
        )
    finally:
        loop.do(client.close())
    assert error.may_have_executed is False
    return str(error)


@pytest.mark.parametrize("wire", [TLS, WSS], ids=str)
def test_a_certificate_of_an_unknown_authority_or_host_is_refused(
    wire: Wire, loop: Loop, places: Places
) -> None:
    scene = Scene(loop, places.new(wire))
    fail(loop, scene.place.dialling(ca=str(places.certificates.other_ca)), "certificate")
    message = fail(loop, scene.place.dialling(server_name="elsewhere.example"), "certificate")
    assert "elsewhere.example" in message
    scene.assert_unharmed()


@both_loops
def test_a_certificate_for_another_name_is_refused(loop: Loop, places: Places) -> None:
    files = places.certificates
    place = places.new(TLS)
    options = {"certificate": str(files.wrong_name), "key": str(files.wrong_name_key)}
    worker = loop.worker(bind=place.listening(**options))
    message = fail(loop, place.as_told(worker.addresses[0]).dialling(), "certificate")
    assert "127.0.0.1" in message


def test_a_worker_may_require_a_certificate_of_its_client(loop: Loop, places: Places) -> None:
    files = places.certificates
    place = places.new(TLS)
    worker = loop.worker(bind=place.listening(ca=str(files.ca)))
    place = place.as_told(worker.addresses[0])
    own = {"certificate": str(files.certificate), "key": str(files.key)}
    good = requite.AsyncClient(place.dialling(**own))
    try:
        assert loop.ask(good, b"x") == b"x"
        fail(loop, place.dialling())
        assert loop.ask(good, b"y") == b"y"
    finally:
        loop.do(good.close())


@pytest.mark.usefixtures("short_handshake_timeout")
def test_the_blocking_client_raises_the_same_errors(
    loop: Loop, places: Places, hands: Hands
) -> None:
    secret, listener = Scene(loop, places.new(TLS)), hands.listen(places.new())
    plain = Place(TLS, places.certificates, Scene(loop, places.new()).place.port)
    for url, message in (
        (secret.place.dialling(ca=str(places.certificates.other_ca)), "certificate"),
        (plain.dialling(), "TLS"),
        (listener.place.dialling(), f"within {SILENCE_S:g} s"),
        ("sp+tcp://127.0.0.1:1", "refused"),
    ):
        with requite.Client(url) as client:
            error = failure(
                requite.CallTimeout,
                message,
                lambda timeout, client=client: client.call(b"x", timeout=timeout),
            )
        assert error.may_have_executed is False
    secret.assert_unharmed()


@both_loops
def test_tls_and_plain_peers_do_not_connect(loop: Loop, places: Places) -> None:
    plain, secret = Scene(loop, places.new()), Scene(loop, places.new(TLS))
    fail(loop, Place(TLS, places.certificates, plain.place.port).dialling(), "TLS")
    fail(loop, Place(TCP, places.certificates, secret.place.port).dialling())
    for each in (plain, secret):
        each.assert_unharmed()


@both_loops
def test_a_tls_handshake_cut_at_any_length(loop: Loop, places: Places) -> None:
    scene = Scene(loop, places.new(TLS))
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context(cafile=places.certificates.ca)
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
    hello = outgoing.read()
    for end in range(0, len(hello), 20):
        with socket.create_connection(("127.0.0.1", scene.place.port), WAIT_S) as peer:
            peer.sendall(hello[:end])
    scene.assert_unharmed()
