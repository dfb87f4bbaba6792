"""The host: back-pressure by peers and by the engine."""

from __future__ import annotations

from typing import Any

import pytest
from tests.shell.fakes import HostBench, echo, warnings_of

from requite.engine import (
    Cancel,
    Drain,
    PeerBlocked,
    PeerLost,
    PeerWritable,
    ResumeReading,
    Send,
    StopReading,
)
from requite.shell.host import LinkLimits


# --- peers that do not read -----------------------------------------------------------------------
def test_a_peer_that_does_not_read_is_not_read_from() -> None:
    bench = HostBench(LinkLimits(output_size_max=56))
    link, stream = bench.open()
    bench.engine.script = echo
    bench.host.blocked(link)
    bench.host.blocked(link)
    bench.host.flush()
    assert "pause" not in stream.calls  # the peer may be busy with one large message
    assert bench.engine.kinds() == ["PeerJoined", "PeerBlocked"]
    assert bench.told == [("flow", False)]
    bench.host.received(link, b"one\ntwo\n")
    bench.host.flush()
    assert stream.calls[-1] == "pause"
    assert stream.written == b"hello\n"  # the output is held back
    assert link.size == 8
    bench.host.writable(link)
    assert stream.written == b"hello\none\ntwo\n"
    assert stream.calls[-1] == "resume"
    assert bench.engine.inputs[-1] == PeerWritable(link)
    assert bench.told == [("flow", False), ("flow", True)]


def test_a_blocked_dialled_link_is_still_read_from(bench: HostBench) -> None:
    link, stream = bench.open(accepted=False)
    bench.host.blocked(link)
    bench.host.writable(link)
    assert "pause" not in stream.calls
    assert "resume" not in stream.calls
    assert bench.engine.inputs[1:] == [PeerBlocked(link), PeerWritable(link)]


def test_a_link_that_blocks_again_at_once_is_not_reported(bench: HostBench) -> None:
    link, stream = bench.open()
    bench.engine.script = echo
    bench.host.blocked(link)
    bench.host.received(link, b"much\n")
    stream.on_write = lambda: bench.host.blocked(link)
    bench.host.writable(link)
    assert bench.engine.kinds() == ["PeerJoined", "PeerBlocked", "Received"]
    assert "resume" not in stream.calls


def test_blocking_inside_a_flush_is_reported_and_its_effects_flushed(bench: HostBench) -> None:
    slow, slow_stream = bench.open("slow")
    _, other_stream = other = bench.open("other")
    bench.engine.script = lambda event: (
        [Send(other[0], [b"slow", b"blocks"])]
        if isinstance(event, PeerBlocked)
        else [Send(slow, [b"data"])]
    )
    slow_stream.on_write = lambda: bench.host.blocked(slow)
    bench.host.submit(Drain())
    bench.host.flush()
    assert other_stream.written == b"hello\nslow blocks\n"


def test_exceeding_the_output_limit_ends_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    bench = HostBench(LinkLimits(output_size_max=10))
    link, stream = bench.open("slow")
    bench.engine.script = lambda event: (
        [Send(link, [b"0123456789"])] if isinstance(event, Cancel) else []
    )
    bench.host.submit(Cancel(1))
    bench.host.flush()  # 11 bytes exceed the limit, but are written at once
    assert stream.calls[-1] == b"0123456789\n"
    bench.host.blocked(link)
    bench.host.submit(Cancel(2))
    bench.host.flush()
    assert stream.calls[-1] == "abort"
    assert bench.engine.inputs[-1] == PeerLost(link, "does not read: 11 bytes are queued for it")
    assert warnings_of(caplog) == ["output limit: slow does not read: 11 bytes are queued for it"]
    assert bench.told[-1] == ("ended", True, "does not read: 11 bytes are queued for it")
    assert ("flow", True) in bench.told  # no link is blocked any more
    bench.host.closed(link, "")
    assert bench.engine.kinds().count("PeerLost") == 1


def test_flow_is_reported_for_all_links_together(bench: HostBench) -> None:
    one, _ = bench.open("one")
    two, _ = bench.open("two")
    bench.host.blocked(one)
    bench.host.blocked(two)
    bench.host.writable(one)
    assert bench.told == [("flow", False)]
    bench.host.closed(two, "reset")
    assert ("flow", True) in bench.told


# --- back-pressure by the engine ------------------------------------------------------------------
def perform(bench: HostBench, *effects: Any) -> None:
    bench.engine.script = lambda event: effects
    bench.host.submit(Drain())
    bench.engine.script = lambda event: []


def test_the_engine_stops_reading_one_peer_and_resumes(bench: HostBench) -> None:
    one, one_stream = bench.open("one")
    _, two_stream = bench.open("two")
    perform(bench, StopReading(one))
    perform(bench, StopReading(one))
    assert one_stream.calls.count("pause") == 1
    perform(bench, ResumeReading(one), ResumeReading(one))
    assert one_stream.calls[-2:] == ["pause", "resume"]
    assert "pause" not in two_stream.calls


def test_reading_resumes_once_engine_and_host_allow_it() -> None:
    bench = HostBench(LinkLimits(output_size_max=56))
    link, stream = bench.open()
    bench.host.blocked(link)
    perform(bench, StopReading(link), Send(link, [b"12345678"]))
    bench.host.flush()
    assert stream.calls.count("pause") == 1
    perform(bench, ResumeReading(link))
    assert "resume" not in stream.calls  # the link still has queued output
    perform(bench, StopReading(link))
    bench.host.writable(link)
    assert "resume" not in stream.calls
    perform(bench, ResumeReading(link))
    assert stream.calls[-1] == "resume"


def test_reading_effects_on_an_ended_link_are_ignored(bench: HostBench) -> None:
    link, stream = bench.open()
    perform(bench, StopReading(link))
    bench.host.closed(link, "reset")
    calls = list(stream.calls)
    perform(bench, ResumeReading(link), StopReading(link))
    assert stream.calls == calls
