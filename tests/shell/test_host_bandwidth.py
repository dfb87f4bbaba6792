"""The host: bytes per second of each owner, over all its connections."""

from __future__ import annotations

import pytest
from tests.shell.fakes import FakeStream, HostBench

from requite.principal import Principal, Quota
from requite.shell.link import Link

RATE = 10_000  # bytes per second
LINE = b"x" * 99 + b"\n"


class Bench(HostBench):
    """A host whose peers belong to `owner`, unless their stream is of another name."""

    def __init__(self) -> None:
        self.owner = Principal("shop", None, Quota(bytes_per_s=RATE))
        self.other = Principal("other")
        super().__init__(
            identify=lambda _, name, _place: self.other if name == "other" else self.owner
        )

    def flood(self, seconds: float, links: list[tuple[Link, FakeStream]]) -> int:
        """Send lines over links as long as these are read from; return the received bytes."""
        received = 0
        end = self.now + seconds
        while self.now < end:
            for link, stream in links:
                if is_read(stream) and not link.ended:
                    self.host.received(link, LINE)
                    received += len(LINE)
            self.tick(0.001)
        return received


def is_read(stream: FakeStream) -> bool:
    calls = [each for each in stream.calls if each in ("pause", "resume")]
    return not calls or calls[-1] == "resume"


@pytest.mark.parametrize("connections", [1, 7])
def test_a_flood_is_read_at_the_rate_over_all_connections(connections: int) -> None:
    bench = Bench()
    links = [bench.open(f"peer{number}") for number in range(connections)]
    received = bench.flood(10.0, links)
    assert 10 * RATE <= received <= 10 * RATE + 0.1 * RATE + (connections + 1) * len(LINE)


def test_a_peer_within_its_rate_is_always_read_from() -> None:
    bench = Bench()
    link, stream = bench.open()
    for _ in range(500):
        bench.host.received(link, LINE)
        bench.tick(len(LINE) / RATE)
    assert "pause" not in stream.calls
    assert len(bench.engine.messages()) == 500


def test_others_are_read_from_while_one_is_ahead() -> None:
    bench = Bench()
    link, stream = bench.open("peer")
    other, others = bench.open("other")
    for _ in range(200):
        bench.host.received(link, LINE)
        bench.host.received(other, LINE)
    assert not is_read(stream)
    assert "pause" not in others.calls


def test_a_changed_quota_applies_to_open_connections() -> None:
    bench = Bench()
    link, stream = bench.open()
    bench.host.received(link, LINE * 10_000)  # 100 s ahead
    assert not is_read(stream)
    bench.owner.grant(None, Quota(bytes_per_s=100 * RATE))
    bench.host.rights_changed()
    assert is_read(stream)
    bench.owner.grant(None, Quota())
    bench.host.rights_changed()
    bench.host.received(link, LINE * 10_000)
    assert is_read(stream)


def test_a_link_that_ends_leaves_no_state() -> None:
    bench = Bench()
    link, stream = bench.open()
    bench.host.received(link, LINE * 1_000)
    assert len(bench.host._limiter) == 1
    bench.host.closed(link, "reset")
    assert len(bench.host._limiter) == 0
    bench.tick(100.0)
    assert not is_read(stream)


def test_a_removed_user_leaves_no_state() -> None:
    bench = Bench()
    link, _ = bench.open()
    bench.host.received(link, LINE)
    bench.owner.revoke()
    bench.host.rights_changed()
    assert not bench.host._limiter._bandwidth._used_until


def test_a_message_that_is_incomplete_because_of_the_rate_does_not_end_its_link() -> None:
    bench = Bench()
    link, stream = bench.open()
    bench.host.received(link, b"x" * 50 * RATE)
    bench.tick(45.0)  # beyond the time limit of incomplete messages
    assert not link.ended
    bench.tick(10.0)
    assert is_read(stream)
