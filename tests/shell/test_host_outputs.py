"""The host: limits of the output that peers do not read, per link, per owner and in all."""

from __future__ import annotations

import pytest
from tests.shell.fakes import FakeStream, HostBench, warnings_of

from requite.engine import SendAll
from requite.principal import Principal, Quota
from requite.shell.link import Link, LinkLimits

MIB = 1 << 20


class Unread(FakeStream):
    """A stream that pushes back once it has buffered some bytes; its peer reads on request."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.buffered = 0

    def write(self, data: bytes) -> None:
        assert self.owner is not None
        super().write(data)
        self.buffered += len(data)
        if self.buffered > 64 << 10:
            self.owner.blocked(self.link)

    def read(self) -> None:
        """Let the peer read what is buffered."""
        assert self.owner is not None
        self.buffered = 0
        self.owner.writable(self.link)


class Bench(HostBench):
    """A host whose peers belong to the user of their stream's name before the dash."""

    def __init__(self, limits: LinkLimits | None = None, quota: int = 0) -> None:
        self.users: dict[str, Principal] = {}
        self.quota = Quota(bytes=quota)
        super().__init__(limits, identify=lambda _credential, name, _place: self.user(name))

    def user(self, peer: str) -> Principal:
        name = peer.partition("-")[0]
        return self.users.setdefault(name, Principal(name, None, self.quota))

    def connect(self, name: str) -> tuple[Link, Unread]:
        stream = Unread(name)
        link = self.host.opened(stream, accepted=True)
        self.host.received(link, b"me\n")
        return link, stream

    def send(self, link: Link, size: int, count: int = 1) -> None:
        """Have the engine send messages in one turn."""
        self.engine.script = lambda _event: [SendAll(link, [[bytes(size)]] * count)]
        self.host.received(link, b"go\n")
        self.engine.script = lambda _event: ()
        self.host.flush()


def test_a_large_output_is_written_in_portions_until_the_stream_pushes_back() -> None:
    """The stream must not hold in its buffer what nobody counts."""
    bench = Bench()
    link, stream = bench.connect("ann")
    bench.send(link, MIB, 40)
    assert stream.buffered < 3 * MIB
    assert 37 * MIB < link.size < 40 * MIB
    while link.size:
        stream.read()
        assert stream.buffered < 3 * MIB
    assert stream.written.count(b"\n") == 41
    assert not len(bench.host._limiter)


def test_a_turn_with_too_much_output_for_a_peer_drops_it(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    link, stream = bench.connect("ann")
    bench.send(link, 15 * MIB, 100)
    assert link.ended
    assert stream.calls[-1] == "abort"
    assert stream.buffered < 17 * MIB
    assert "output limit: ann does not read" in warnings_of(caplog)[0]
    assert not len(bench.host._limiter)


def test_the_unread_output_of_an_owner_is_within_its_quota(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench(quota=10 * MIB)
    links = [bench.connect(f"ann-{number}")[0] for number in range(8)]
    other, _ = bench.connect("bob")
    for link in [*links, other]:
        bench.send(link, MIB, 4)
    held = sum(link.size for link in links if not link.ended)
    assert 5 * MIB < held <= 10 * MIB
    assert not other.ended
    assert "those for ann exceed the bytes of its quota" in warnings_of(caplog)[0]


def test_one_reply_above_the_quota_is_sent() -> None:
    bench = Bench(quota=MIB)
    link, stream = bench.connect("ann")
    bench.send(link, 20 * MIB)
    assert not link.ended
    assert len(stream.written) > 20 * MIB


def test_beyond_the_limit_of_all_the_peer_with_the_most_is_dropped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench(LinkLimits(output_total_max=30 * MIB))
    small, large = bench.connect("ann")[0], bench.connect("bob")[0]
    bench.send(small, MIB, 12)
    bench.send(large, MIB, 30)
    assert (small.ended, large.ended) == (False, True)
    assert "LinkLimits.output_total_max" in warnings_of(caplog)[0]


def test_a_peer_that_reads_again_is_not_counted_any_more() -> None:
    bench = Bench(quota=10 * MIB)
    for number in range(20):
        link, stream = bench.connect(f"ann-{number}")
        bench.send(link, MIB, 4)
        while link.size:
            stream.read()
    assert all(not link.ended for link in bench.host.links)
    assert not len(bench.host._limiter)
