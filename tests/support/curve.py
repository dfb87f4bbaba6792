"""Keys and connections with CURVE: the test keys of zmq_curve(7), and repeatable randomness."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import shake_256
from typing import Final

from requite.framing import SocketType, Zmtp
from requite.framing.z85 import decode_z85
from requite.framing.zmtp_curve import CurveClient, CurveServer, KeyPair

CLIENT_SECRET: Final = "D:)Q[IlAW!ahhC2ac:9*A}h:p?([4%wOTJ%JR%cs"
CLIENT_PUBLIC: Final = "Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID"
SERVER_SECRET: Final = "JTKVSB%%)wK0E.X)V>+}o?pNmC{O&4W4b!Ni{Lh6"
SERVER_PUBLIC: Final = "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7"

CLIENT: Final = KeyPair.of(decode_z85(CLIENT_SECRET))
SERVER: Final = KeyPair.of(decode_z85(SERVER_SECRET))
STRANGER: Final = KeyPair.of(bytes(range(32)))


class Chance:
    """Repeatable bytes in place of a random source; `drawn` has all that were given out."""

    def __init__(self, seed: bytes) -> None:
        self._seed = seed
        self.drawn: list[bytes] = []

    def __call__(self, size: int) -> bytes:
        number = len(self.drawn).to_bytes(4, "big")
        self.drawn.append(shake_256(self._seed + number).digest(size))
        return self.drawn[-1]


def client_of(
    own: KeyPair = CLIENT,
    server_key: bytes = SERVER.public,
    *,
    socket_type: SocketType = SocketType.DEALER,
    chance: Chance | None = None,
    **options: object,
) -> Zmtp:
    """Return the framing of a client."""
    mechanism = CurveClient(server_key, own, chance or Chance(b"client"))
    return Zmtp(socket_type, mechanism=mechanism, **options)


def server_of(
    *own: KeyPair,
    check: Callable[[str], bool] = lambda key: key == CLIENT_PUBLIC,
    socket_type: SocketType = SocketType.ROUTER,
    chance: Chance | None = None,
    **options: object,
) -> Zmtp:
    """Return the framing of a server."""
    mechanism = CurveServer(own or (SERVER,), check, chance or Chance(b"server"))
    return Zmtp(socket_type, mechanism=mechanism, **options)


def connected(**options: object) -> tuple[Zmtp, Zmtp]:
    """Return a client and a server after their handshake; the options are of both."""
    client, server = client_of(**options), server_of(**options)
    to_server, to_client = client.opening(), server.opening()
    while to_server or to_client:
        assert server.receive(to_server) == []
        assert client.receive(to_client) == []
        to_server, to_client = client.output(), server.output()
    assert client.ready
    assert server.ready
    return client, server


def encoded(framing: Zmtp, *messages: list[bytes]) -> bytes:
    """Return the bytes of messages."""
    out: list[bytes] = []
    size = sum(framing.encode(message, out) for message in messages)
    data = b"".join(out)
    assert size == len(data)
    return data
