"""The host: handshakes, protocol violations, farewells, and dropped connections."""

from __future__ import annotations

import pytest
from tests.shell.fakes import FakeStream, HostBench, warnings_of

from requite.engine import (
    Cancel,
    Cause,
    Disconnect,
    Drain,
    PeerLost,
    Received,
    Send,
    Warn,
)


# --- handshakes -----------------------------------------------------------------------------------
def test_a_silent_connection_is_dropped_at_the_timeout(
    bench: HostBench, caplog: pytest.LogCaptureFixture
) -> None:
    silent, stream = bench.open("silent", joined=False)
    _, lively = bench.open("lively")
    bench.tick(29.0)
    assert "abort" not in stream.calls
    bench.tick(1.0)
    assert stream.calls[-1] == "abort"
    assert "abort" not in lively.calls
    assert warnings_of(caplog) == [
        "handshake timeout: silent did not complete the handshake within 30 s"
    ]
    assert silent.ended
    assert bench.engine.kinds() == ["PeerJoined"]  # nothing of the silent connection


def test_ten_thousand_silent_connections_need_one_timer(bench: HostBench) -> None:
    streams = [bench.open(joined=False)[1] for _ in range(10_000)]
    assert len(bench.wakes) == 1
    bench.tick(30.0)
    assert all(stream.calls[-1] == "abort" for stream in streams)
    assert len(bench.wakes) == 1


def test_an_address_with_an_alternative_has_less_time(bench: HostBench) -> None:
    bench.open("first", joined=False)
    hasty = bench.host.opened(FakeStream("hasty"), patience_s=1.0)
    quick = bench.host.opened(FakeStream("quick"), patience_s=0.5)
    bench.host.received(quick, b"quick\n")
    assert bench.armed_at == 100.5
    bench.tick(0.5)
    assert bench.armed_at == 101.0
    assert not quick.ended
    bench.tick(0.5)
    assert hasty.ended
    assert bench.told == [("ended", False, "accepted the connection, but sent nothing")]
    assert bench.connects == 1
    bench.tick(28.9)
    assert len(bench.told) == 1
    bench.tick(0.1)
    assert len(bench.told) == 2  # the first one, which had the full 30 s


def test_a_dialled_connection_that_ends_in_its_handshake_is_dialled_again(bench: HostBench) -> None:
    link, _ = bench.open(accepted=False, joined=False)
    bench.host.closed(link, "")
    assert bench.connects == 1
    assert bench.told[0] == ("ended", False, "the peer closed the connection")
    bench.open(accepted=False, joined=False)
    bench.tick(30.0)
    assert bench.connects == 2
    link, _ = bench.open(accepted=False, joined=False)
    bench.host.received(link, b"!\n")
    assert bench.connects == 3
    link, _ = bench.open(accepted=False)
    bench.host.closed(link, "")  # the engine itself requests the next one
    assert bench.connects == 3
    link, _ = bench.open(accepted=True, joined=False)
    bench.host.closed(link, "")
    assert bench.connects == 3


def test_a_failed_handshake_is_logged_with_its_reason(
    bench: HostBench, caplog: pytest.LogCaptureFixture
) -> None:
    """The dialling side gets an error; the listening side has only its log."""
    for accepted, joined, reason in (
        (True, False, ""),  # the peer disconnected without sending anything
        (True, True, "the connection broke"),
        (False, False, "the peer does not speak TLS"),
    ):
        link, _ = bench.open(accepted=accepted, joined=joined)
        bench.host.closed(link, reason)
    assert not caplog.records
    link, _ = bench.open("bad", accepted=True, joined=False)
    bench.host.closed(link, "the peer does not speak TLS")
    assert warnings_of(caplog) == ["handshake failed: bad: the peer does not speak TLS"]


def test_reports_dials_suppresses_warnings_of_failed_dials(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = HostBench(reports_dials=True)
    for _ in range(3):
        link, _ = bench.open("garbled", accepted=False, joined=False)
        bench.host.received(link, b"!nonsense\n")
        bench.open("silent", accepted=False, joined=False)
        bench.tick(30.0)
    assert [told for told in bench.told if told[0] == "ended"] == 3 * [
        ("ended", False, "no line starts like b'!nonsense'"),
        ("ended", False, "did not complete the handshake within 30 s"),
    ]
    assert warnings_of(caplog) == []
    link, _ = bench.open("accepted", accepted=True, joined=False)
    bench.host.received(link, b"!nonsense\n")
    bench.tick(1.0)
    link, _ = bench.open("joined", accepted=False)
    bench.host.received(link, b"!nonsense\n")
    assert [text.split(":")[1] for text in warnings_of(caplog)] == [" accepted", " joined"]


# --- violations -----------------------------------------------------------------------------------
def test_a_violation_ends_only_the_connection_of_the_peer(
    bench: HostBench, caplog: pytest.LogCaptureFixture
) -> None:
    bad, stream = bench.open("bad")
    good, _ = bench.open("good")
    bench.host.received(bad, b"fine\n!nonsense\n")
    assert stream.calls[-2:] == [b"bye\n", "close"]
    assert bench.engine.inputs[2:] == [PeerLost(bad, "no line starts like b'!nonsense'")]
    assert warnings_of(caplog) == ["protocol violation: bad: no line starts like b'!nonsense'"]
    bench.host.received(bad, b"more\n")
    bench.host.received(good, b"hi\n")
    assert bench.engine.messages() == [[[b"hi"]]]


def test_output_for_an_ended_link_is_discarded(bench: HostBench) -> None:
    link, stream = bench.open()
    bench.host.received(link, b"!\n")
    before = list(stream.calls)
    bench.engine.script = lambda event: [Send(link, [b"x"])]
    bench.host.submit(Drain())
    bench.host.flush()
    assert stream.calls == before
    assert link.size == 0
    assert not link.out


def test_warnings_of_a_kind_are_limited_to_one_per_second(
    bench: HostBench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.engine.script = lambda event: [Warn("kind", f"text {event.token}")]
    for number in range(5):
        bench.host.submit(Cancel(number))
    bench.engine.script = lambda event: [Warn("other", "text")]
    bench.host.submit(Cancel(0))
    bench.now += 1.0
    bench.engine.script = lambda event: [Warn("kind", "again")]
    bench.host.submit(Cancel(0))
    assert warnings_of(caplog) == [
        "kind: text 0",
        "other: text",
        "kind: again (4 more of this kind left out)",
    ]


def test_part_of_a_message_is_a_sign_of_life(bench: HostBench) -> None:
    link, _ = bench.open()
    bench.host.received(link, b"one\nt")
    bench.host.received(link, b"w")
    bench.host.received(link, b"o\n")
    batches = [event.messages for event in bench.engine.inputs if isinstance(event, Received)]
    assert batches == [[[b"one"]], [], [[b"two"]]]


# --- closing by the host --------------------------------------------------------------------------
def test_disconnect_sends_what_is_queued_and_is_not_echoed(bench: HostBench) -> None:
    link, stream = bench.open()
    bench.engine.script = lambda event: (
        [Send(link, [b"goodbye"]), Disconnect(link, "enough", Cause.DONE), Send(link, [b"never"])]
        if isinstance(event, Drain)
        else []
    )
    bench.host.submit(Drain())
    assert stream.calls[-2:] == [b"goodbye\n.\n", "close"]
    bench.host.submit(Drain())  # a second `Drain` has no effect
    bench.host.received(link, b"too late\n")
    bench.host.closed(link, "")
    bench.host.flush()
    assert stream.calls[-2:] == [b"goodbye\n.\n", "close"]
    assert "PeerLost" not in bench.engine.kinds()
    assert bench.told == [("ended", True, "enough"), ("released", link)]


def test_a_close_that_hangs_is_aborted(bench: HostBench) -> None:
    link, stream = bench.open()
    bench.host.blocked(link)
    bye = [Disconnect(link, "", Cause.DONE)]
    bench.engine.script = lambda event: bye if isinstance(event, Drain) else []
    bench.host.submit(Drain())
    assert stream.calls[-1] == "close"
    bench.tick(4.9)
    assert stream.calls[-1] == "close"
    bench.tick(0.1)
    assert stream.calls[-1] == "abort"


def test_shut_flushes_all_output_and_does_not_tell_the_engine(bench: HostBench) -> None:
    link, stream = bench.open()
    _, half_open = bench.open(joined=False, accepted=False)
    bench.engine.script = lambda event: [Send(link, [b"last"])]
    bench.host.submit(Drain())
    bench.engine.script = lambda event: pytest.fail(f"{event} came after the end")
    bench.host.shut()
    assert stream.calls[-2:] == [b"last\n.\n", "close"]
    assert half_open.calls[-1] == "close"
    assert bench.connects == 0
    bench.host.abort()
    assert stream.calls[-1] == "abort"


# --- too many connections -------------------------------------------------------------------------
SHORT = "96 of 100 file descriptors are in use"


def drop_one(bench: HostBench) -> str:
    """Accept a connection while file descriptors are short; return the name of the dropped one."""
    newcomer = bench.host.opened(FakeStream("newcomer"), accepted=True)
    before = dict.fromkeys(link for link in bench.host.links if not link.ended)
    bench.host.make_room(newcomer, SHORT)
    [dropped] = [link for link in before if link.ended]
    for link in {dropped, newcomer}:
        bench.host.closed(link, "")
    return dropped.stream.peer_name


def test_silent_connections_are_dropped_when_descriptors_are_short(
    bench: HostBench, caplog: pytest.LogCaptureFixture
) -> None:
    """Drop connections without a handshake first, then silent ones; the oldest first."""
    first_mute, _ = bench.open("first mute")
    bench.open("second mute")
    known, _ = bench.open("known")
    bench.host.received(known, b"hello there\n")
    bench.open("first stranger", joined=False)
    bench.open("second stranger", joined=False)
    dialled = bench.host.opened(FakeStream("dialled"))
    assert [drop_one(bench) for _ in range(5)] == [
        "first stranger",
        "second stranger",
        "first mute",
        "second mute",
        "newcomer",
    ]
    assert not known.ended
    assert not dialled.ended
    assert PeerLost(first_mute, f"dropped: {SHORT}") in bench.engine.inputs
    assert warnings_of(caplog) == [
        f"too many connections: dropped first stranger, which has sent no message: {SHORT}"
    ]
    bench.tick(1.0)
    drop_one(bench)
    assert warnings_of(caplog)[-1].startswith(
        f"too many connections: turned away newcomer: {SHORT}"
    )


def test_a_dropped_connection_counts_until_it_is_closed(bench: HostBench) -> None:
    link, _ = bench.open("stranger", joined=False)
    newcomer, _ = bench.open("newcomer", joined=False)
    bench.host.make_room(newcomer, SHORT)
    assert bench.host.giving_way == 1
    bench.host.closed(link, "")
    assert bench.host.giving_way == 0
