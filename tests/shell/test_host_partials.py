"""The host: incomplete messages of accepted peers have a limit for all together, and in time."""

from __future__ import annotations

import pytest
from tests.shell.fakes import FakeStream, HostBench, LineFraming, warnings_of

from requite.engine import PeerLost
from requite.principal import Principal, Quota
from requite.shell.host import LinkLimits
from requite.shell.link import Link, Pause
from requite.shell.partial_messages import PartialMessages

LIMIT = LinkLimits(partial_size_max=1000, partial_timeout_s=30.0)


def lost(bench: HostBench) -> list[str]:
    """Return the names of the peers that the engine has lost."""
    return [each.peer.stream.peer_name for each in bench.engine.inputs if type(each) is PeerLost]


def test_beyond_the_limit_the_peer_with_the_largest_message_is_dropped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = HostBench(LIMIT)
    small, _ = bench.open("small")
    large, stream = bench.open("large")
    middle, _ = bench.open("middle")
    bench.host.received(small, b"s" * 100)
    bench.host.received(large, b"l" * 300)
    bench.host.received(large, b"l" * 200)
    bench.host.received(middle, b"m" * 400)
    assert not lost(bench), "1,000 bytes are allowed"
    bench.host.received(small, b"s")
    assert lost(bench) == ["large"]
    assert stream.calls[-1] == "abort"
    (line,) = warnings_of(caplog)
    assert line == (
        "incomplete messages: large holds 500 bytes of an incomplete message, and those of all"
        " peers exceed the limit of 1000 bytes (LinkLimits.partial_size_max; for a broker"
        " --partial-size-max)"
    )
    bench.host.received(small, b"\n")
    bench.host.received(middle, b"\n")
    assert bench.engine.messages() == [[], [], [], [], [], [[b"s" * 101]], [[b"m" * 400]]]


def test_unfinished_messages_of_many_peers_take_bounded_memory() -> None:
    bench = HostBench(LIMIT)
    links = [bench.open(f"peer{n}")[0] for n in range(20)]
    for link in links:
        bench.host.received(link, b"x" * 640)
    held = sum(link.framing.partial_size for link in bench.host.links if not link.ended)
    assert held <= 1000
    assert len(lost(bench)) == 19


def test_the_receiving_peer_itself_is_dropped_if_its_message_is_the_largest() -> None:
    bench = HostBench(LIMIT)
    link, _ = bench.open("one")
    bench.host.received(link, b"1\n2\n" + b"x" * 1001)
    assert bench.engine.messages() == [[[b"1"], [b"2"]]], "complete messages still count"
    assert lost(bench) == ["one"]
    bench.host.received(link, b"more\n")
    assert len(bench.engine.messages()) == 1


@pytest.mark.parametrize("end", ["complete", "closed", "farewell", "violation", "shut"])
def test_nothing_is_counted_once_a_message_or_its_link_has_ended(end: str) -> None:
    bench = HostBench(LIMIT)
    link, _ = bench.open("one")
    bench.host.received(link, b"x" * 999)
    if end == "closed":
        bench.host.closed(link, "reset")
    elif end == "shut":
        bench.host.shut()
    else:
        bench.host.received(link, {"complete": b"\n", "farewell": b"\n.\n"}.get(end, b"\n!\n"))
    if end != "shut":
        other, _ = bench.open("other")
        bench.host.received(other, b"x" * 1000)
        assert "other" not in lost(bench)
        bench.host.received(other, b"\n")
    assert len(bench.host._limiter) == 0


def test_a_dialled_peer_has_no_such_limits() -> None:
    bench = HostBench(LIMIT)
    link, _ = bench.open("server", accepted=False)
    bench.host.received(link, b"x" * 5000)
    bench.tick(100.0)
    bench.host.received(link, b"\n")
    assert not lost(bench)


def test_a_peer_that_sends_no_further_byte_is_dropped_in_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = HostBench(LIMIT)
    stalled, _ = bench.open("stalled")
    slow, _ = bench.open("slow")
    bench.host.received(stalled, b"x")
    for _ in range(70):
        bench.host.received(slow, b"x")
        bench.tick(0.5)
    assert lost(bench) == ["stalled"], "a message may take any time while bytes arrive"
    assert warnings_of(caplog) == [
        "incomplete messages: stalled sent no further byte of a message for 30 s"
    ]
    bench.tick(30.0)
    assert lost(bench) == ["stalled", "slow"]


def test_a_peer_that_is_not_read_from_does_not_stall() -> None:
    bench = HostBench(LIMIT)
    link, _ = bench.open()
    bench.host.received(link, b"x")
    link.pause(Pause.ENGINE)
    for _ in range(4):
        bench.tick(30.0)
    assert not lost(bench)
    link.resume(Pause.ENGINE)
    bench.tick(30.0)
    assert lost(bench) == ["peer"]


def test_a_pause_of_this_process_is_no_evidence() -> None:
    bench = HostBench(LIMIT)
    link, _ = bench.open()
    bench.host.received(link, b"x")
    bench.tick(100.0)
    assert not lost(bench), "its bytes may be unread"
    bench.tick(30.0)
    assert lost(bench) == ["peer"]


def test_there_is_room_for_one_message_of_the_maximum_size() -> None:
    assert LIMIT.for_messages(5000).partial_size_max == 5000 + (1 << 20)
    generous = LinkLimits(partial_size_max=2 << 20)
    assert generous.for_messages(500) == generous


def test_the_incomplete_messages_of_an_owner_are_within_its_quota() -> None:
    owner, other = Principal("shop", quota=Quota(bytes=100)), Principal("other")
    limits = LinkLimits(partial_size_max=10_000)
    partials = PartialMessages(limits)
    links = [Link(FakeStream(), LineFraming(), accepted=True) for _ in range(3)]
    for link, principal in zip(links, (owner, owner, other), strict=True):
        link.principal = principal
    partials.update(links[0], 60, 1.0)
    partials.update(links[2], 5_000, 1.0)
    assert partials.sizes.choose_over_quota(owner) is None
    partials.update(links[1], 41, 1.0)
    assert partials.sizes.choose_over_quota(owner) is links[0]
    assert partials.sizes.choose_over_quota(other) is None
    partials.forget(links[0])
    assert partials.sizes.choose_over_quota(owner) is None
