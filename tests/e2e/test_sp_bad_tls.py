"""Bad input on real sockets, over TLS: certificates and handshakes."""

from __future__ import annotations

import socket
import ssl

import pytest
from tests.e2e.sp_scene import (
    SILENCE_S,
    Scene,
    both_loops,
    hasty,
    loop,
    no_leaks,
    scene,
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

__all__ = ["certificates", "hands", "hasty", "loop", "no_leaks", "places", "scene", "warm", "web"]

pytestmark = pytest.mark.e2e


def fail(loop: Loop, url: str, words: str = "") -> str:
    """Make a call that never leaves; return what is said of it, in which these words are."""
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
def test_a_certificate_of_a_stranger_is_refused(wire: Wire, loop: Loop, places: Places) -> None:
    scene = Scene(loop, places.new(wire))
    fail(loop, scene.place.dialling(ca=str(places.certificates.other_ca)), "certificate")
    told = fail(loop, scene.place.dialling(server_name="elsewhere.example"), "certificate")
    assert "elsewhere.example" in told
    scene.assert_unharmed()


@both_loops
def test_a_certificate_for_another_name_is_refused(loop: Loop, places: Places) -> None:
    files = places.certificates
    place = places.new(TLS)
    options = {"certificate": str(files.wrong_name), "key": str(files.wrong_name_key)}
    worker = loop.worker(bind=place.listening(**options))
    told = fail(loop, place.as_told(worker.addresses[0]).dialling(), "certificate")
    assert "127.0.0.1" in told


def test_a_client_shows_its_certificate_where_it_is_asked_for(loop: Loop, places: Places) -> None:
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


@pytest.mark.usefixtures("hasty")
def test_the_blocking_client_says_the_same(loop: Loop, places: Places, hands: Hands) -> None:
    secret, listener = Scene(loop, places.new(TLS)), hands.listen(places.new())
    plain = Place(TLS, places.certificates, Scene(loop, places.new()).place.port)
    for url, told in (
        (secret.place.dialling(ca=str(places.certificates.other_ca)), "certificate"),
        (plain.dialling(), "TLS"),
        (listener.place.dialling(), f"within {SILENCE_S:g} s"),
        ("sp+tcp://127.0.0.1:1", "refused"),
    ):
        with requite.Client(url) as client:
            error = failure(
                requite.CallTimeout,
                told,
                lambda timeout, client=client: client.call(b"x", timeout=timeout),
            )
        assert error.may_have_executed is False
    secret.assert_unharmed()


@both_loops
def test_tls_and_plain_do_not_meet(loop: Loop, places: Places) -> None:
    plain, secret = Scene(loop, places.new()), Scene(loop, places.new(TLS))
    fail(loop, Place(TLS, places.certificates, plain.place.port).dialling(), "TLS")
    fail(loop, Place(TCP, places.certificates, secret.place.port).dialling())
    for each in (plain, secret):
        each.assert_unharmed()


@both_loops
def test_a_handshake_of_tls_cut_anywhere(loop: Loop, places: Places) -> None:
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
