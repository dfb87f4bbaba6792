"""Thousands of half TLS handshakes: the broker goes on serving, and closes them in time."""

from __future__ import annotations

import resource
import socket
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Final, NamedTuple

import pytest
from tests.support.certificates import Certificates
from tests.support.crowd import await_closed
from tests.support.live import eventually

import requite
from requite.testing.processes import Child
from requite.transport.tls_listener import HANDSHAKES_MAX

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts descriptors in /proc"),
]


class Attack(NamedTuple):
    """The number of connections, the broker's handshake timeout, and what each peer sends."""

    size: int
    handshake_s: float
    sent: int  # bytes of a ClientHello
    bytes_per_connection_max: int


WHOLE: Final = 1 << 20
ATTACKS: Final = (
    pytest.param(Attack(1_000, 8.0, 100, 32 << 10), id="1,000 truncated"),
    pytest.param(Attack(1_000, 8.0, WHOLE, 128 << 10), id="1,000 without an end"),
    pytest.param(Attack(10_000, 30.0, 100, 32 << 10), id="10,000", marks=pytest.mark.long),
    pytest.param(
        Attack(10_000, 30.0, WHOLE, 128 << 10), id="10,000 w/o end", marks=pytest.mark.long
    ),
)
SPARE_DESCRIPTORS: Final = 300
CLOSE_S: Final = 30.0


@pytest.fixture(params=ATTACKS)
def attack(request: pytest.FixtureRequest) -> Iterator[Attack]:
    attack: Attack = request.param
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = max(soft, min(attack.size + SPARE_DESCRIPTORS, hard))
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))  # the broker inherits it
    yield attack._replace(size=min(attack.size, limit - SPARE_DESCRIPTORS))
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class SecureBroker:
    """A broker process that verifies its clients."""

    def __init__(self, attack: Attack, files: Certificates) -> None:
        shown = files.server
        options = f"certificate={shown.certificate}&key={shown.key}&ca={files.ca}"
        self._process = Child(
            "broker",
            [
                "-m",
                "tests.support.short_broker",
                str(attack.handshake_s),
                f"tls://127.0.0.1:0?{options}",
            ],
            folder=Path(__file__).parents[2],
        )
        place = self._process.read_line().split()[-1]
        self.port = int(place.rpartition(":")[2])
        own = f"ca={files.ca}&certificate={files.client.certificate}"
        self.url = f"mdp+tls://127.0.0.1:{self.port}/mmi.service?{own}"
        self.url += f"&certificate_key={files.client.key}"

    def descriptors(self) -> int:
        return sum(1 for _ in Path(f"/proc/{self._process.pid}/fd").iterdir())

    def memory(self) -> int:
        """Return its resident memory in bytes."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
        return int(line.split()[1]) << 10

    def close(self) -> None:
        self._process.kill()


def hello_to(files: Certificates) -> bytes:
    """Return a complete ClientHello."""
    session = files.to_dial.session_to("localhost")
    session.begin()
    return session.output()


def test_half_handshakes(attack: Attack, tmp_path: Path) -> None:
    files = Certificates(tmp_path)
    broker, hello = SecureBroker(attack, files), hello_to(files)[: attack.sent]
    crowd: list[socket.socket] = []
    try:
        with requite.Client(broker.url, timeout=20) as known:
            known.call(b"x")
            before, memory = broker.descriptors(), broker.memory()
            began = monotonic()
            for number in range(attack.size):
                crowd.append(socket.create_connection(("127.0.0.1", broker.port), 20))
                crowd[-1].sendall(hello)
                if number % 100 == 99:
                    known.call(b"x")
                    if monotonic() - began > attack.handshake_s / 2:
                        break  # a slow machine: attack with fewer
            # Handshakes that have begun are limited in number, because they take memory.
            held = min(len(crowd), HANDSHAKES_MAX) if attack.sent == WHOLE else len(crowd)
            eventually(lambda: broker.descriptors() >= before + held, "all are accepted")
            used = broker.memory() - memory
            assert used < held * attack.bytes_per_connection_max
            with requite.Client(broker.url, timeout=20) as newcomer:
                assert newcomer.call(b"x").body
            await_closed(crowd, lambda: known.call(b"x"), attack.handshake_s + CLOSE_S)
            eventually(lambda: broker.descriptors() <= before, "all are closed")
            known.call(b"x")
    finally:
        for member in crowd:
            member.close()
        broker.close()
