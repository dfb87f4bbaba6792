"""The host, with a scripted engine and fake streams."""

from __future__ import annotations

from typing import Any

import pytest
from tests.shell.fakes import FakeStream, HostBench, LineFraming, ScriptedEngine, warnings_of

from requite.engine import (
    Abandon,
    Cancel,
    Connect,
    Deliver,
    Disconnect,
    Drain,
    Fail,
    Note,
    PeerBlocked,
    PeerJoined,
    PeerLost,
    PeerWritable,
    Received,
    ResumeReading,
    Send,
    Stopped,
    StopReading,
    Warn,
)
from requite.errors import CallTimeout, LocalViolation
from requite.framing import IdentityTable
from requite.shell.host import Host, LinkLimits


@pytest.fixture
def bench() -> HostBench:
    return HostBench()


def echo(event: Any) -> list[Any]:
    if isinstance(event, Received):
        return [Send(event.peer, message) for message in event.messages]
    return []


# --- reading --------------------------------------------------------------------------------------
def test_a_new_connection_gets_the_opening_and_joins_after_the_handshake(bench: HostBench) -> None:
    link, stream = bench.open("ann", joined=False)
    assert stream.calls == ["start", b"hello\n"]
    assert bench.engine.inputs == []
    bench.host.received(link, b"an")
    assert bench.engine.inputs == []
    bench.host.received(link, b"n\n")
    assert bench.engine.inputs == [PeerJoined(link, b"ann")]


def test_a_chunk_is_one_input_however_many_messages_it_brings(bench: HostBench) -> None:
    link, _ = bench.open("ann", joined=False)
    bench.host.received(link, b"ann\na b\nc\nhalf")
    bench.host.received(link, b"-way\n")
    assert bench.engine.inputs == [
        PeerJoined(link, b"ann"),
        Received(link, [[b"a", b"b"], [b"c"]]),
        Received(link, [[b"half-way"]]),
    ]


def test_a_framing_without_handshake_joins_at_once(bench: HostBench) -> None:
    framing = LineFraming()
    framing.ready = True
    link = bench.host.opened(FakeStream(), framing=framing)
    assert bench.engine.inputs == [PeerJoined(link, b"")]


def test_what_the_framing_says_by_itself_is_sent(bench: HostBench) -> None:
    link, stream = bench.open()
    bench.host.received(link, b"?\n")
    bench.host.flush()
    assert stream.calls[-1] == b"yes\n"


def test_the_end_is_told_with_a_reason(bench: HostBench) -> None:
    one, _ = bench.open("one")
    two, _ = bench.open("two")
    three, _ = bench.open("three")
    bench.host.received(two, b"incompl")
    bench.host.closed(one, "")
    bench.host.closed(two, "")
    bench.host.closed(three, "reset")
    assert bench.engine.inputs[4:] == [
        PeerLost(one, "the peer closed the connection"),
        PeerLost(two, "hung up in the middle of a line"),
        PeerLost(three, "reset"),
    ]
    assert not bench.host.links


def test_a_farewell_is_answered_and_ends_the_connection_after_what_came_before_it(
    bench: HostBench, caplog: pytest.LogCaptureFixture
) -> None:
    link, stream = bench.open()
    bench.engine.script = echo
    bench.host.received(link, b"one\n.\ntwo\n")
    assert bench.engine.inputs[1:] == [
        Received(link, [[b"one"]]),
        PeerLost(link, "the peer said farewell"),
    ]
    assert stream.calls[-2:] == [b".\n", "close"]
    assert bench.told[-1] == ("ended", True, "the peer said farewell")
    assert not warnings_of(caplog)


def test_a_farewell_to_a_link_that_the_engine_has_ended_is_told_to_nobody(bench: HostBench) -> None:
    link, stream = bench.open()
    bench.engine.script = lambda event: [Disconnect(link, "enough")]
    bench.host.received(link, b"one\n.\n")
    assert bench.engine.kinds() == ["PeerJoined", "Received"]
    assert stream.calls.count("close") == 1


# --- effects --------------------------------------------------------------------------------------
def test_a_turn_writes_each_link_once(bench: HostBench) -> None:
    one, one_stream = bench.open("one")
    two, two_stream = bench.open("two")
    bench.engine.script = lambda event: [
        Send(one, [b"1"]),
        Send(two, [b"2", b"3"]),
        Send(one, [b"4"]),
    ]
    bench.host.submit(Cancel("x"))
    bench.host.submit(Cancel("y"))
    assert bench.flushes_wanted == 1
    assert one_stream.calls[-1] == two_stream.calls[-1] == b"hello\n"
    bench.host.flush()
    assert one_stream.calls[-1] == b"1\n4\n1\n4\n"
    assert two_stream.calls[-1] == b"2 3\n2 3\n"
    bench.host.submit(Cancel("z"))
    assert bench.flushes_wanted == 2


def test_effects_are_performed_in_order(bench: HostBench) -> None:
    error = CallTimeout("late")
    note = Note("kind", {"a": 1})
    bench.engine.script = lambda event: [
        Fail("t1", error),
        note,
        Deliver("t2", b"reply"),
        Connect(),
        Abandon("t3", "nobody waits"),
        Stopped(),
    ]
    bench.host.submit(Drain())
    assert bench.told == [
        ("fail", "t1", error),
        note,
        ("deliver", "t2", b"reply"),
        ("abandon", "t3", "nobody waits"),
        "stopped",
    ]
    assert bench.connects == 1


def test_an_effect_nobody_asked_for_is_a_bug_that_shows() -> None:
    engine = ScriptedEngine()
    host = Host(engine, lambda: 0.0, LineFraming, wake_at=print, want_flush=print)
    for effect in (Deliver("t", 1), Fail("t", CallTimeout("x")), Connect(), Abandon("t", "r")):
        engine.script = lambda event, effect=effect: [effect]
        with pytest.raises(LocalViolation, match="does not do"):
            host.submit(Drain())


def test_an_input_from_a_callback_waits_until_the_effects_are_through() -> None:
    order: list[str] = []
    engine = ScriptedEngine()

    def script(event: Any) -> Any:
        order.append(f"handle {event.token}")
        if event.token == "outer":
            return [Deliver("first", None), Deliver("second", None)]
        return [Deliver("inner", None)]

    def deliver(token: Any, _what: Any) -> None:
        order.append(f"deliver {token}")
        if token == "first":
            host.submit(Cancel("nested"))

    engine.script = script
    host = Host(engine, lambda: 0.0, LineFraming, wake_at=print, want_flush=print, deliver=deliver)
    host.submit(Cancel("outer"))
    assert order == [
        "handle outer",
        "deliver first",
        "deliver second",
        "handle nested",
        "deliver inner",
    ]


def test_a_callback_that_raises_does_not_jam_the_host(bench: HostBench) -> None:
    def script(event: Any) -> Any:
        if isinstance(event, Drain):
            raise ZeroDivisionError
        return [Deliver("t", 1)]

    bench.engine.script = script
    with pytest.raises(ZeroDivisionError):
        bench.host.submit(Drain())
    bench.host.submit(Cancel("x"))
    assert bench.told == [("deliver", "t", 1)]


# --- the one timer --------------------------------------------------------------------------------
def test_the_timer_is_set_only_for_an_earlier_instant(bench: HostBench) -> None:
    bench.engine.at = 105.0
    bench.host.submit(Drain())
    bench.engine.at = 110.0  # later: the wake at 105 does no harm
    bench.host.submit(Drain())
    bench.engine.at = 104.9999
    bench.host.submit(Drain())
    assert bench.wakes == [105.0]
    bench.engine.at = 103.0
    bench.host.submit(Drain())
    assert bench.wakes == [105.0, 103.0]


def test_an_early_wake_only_sets_the_timer_again(bench: HostBench) -> None:
    bench.engine.at = 105.0
    bench.host.submit(Drain())
    bench.engine.at = 107.0
    bench.host.submit(Drain())
    bench.tick(5.0)
    assert bench.engine.kinds() == ["Drain", "Drain"]
    assert bench.wakes == [105.0, 107.0]
    bench.engine.script = lambda event: setattr(bench.engine, "at", None) or ()
    bench.tick(2.0)
    assert bench.engine.kinds()[-1] == "Wake"  # tuples without fields are all equal
    assert bench.wakes == [105.0, 107.0]


def test_what_is_due_at_once_is_asked_for_at_once(bench: HostBench) -> None:
    bench.engine.at = 0.0
    assert bench.host.next_at() == 0.0
    bench.host.wake()
    assert bench.engine.kinds() == ["Wake"]


# --- handshakes -----------------------------------------------------------------------------------
def test_a_silent_connection_is_dropped_after_its_time(
    bench: HostBench, caplog: pytest.LogCaptureFixture
) -> None:
    silent, stream = bench.open("silent", joined=False)
    _, lively = bench.open("lively")
    bench.tick(29.0)
    assert "abort" not in stream.calls
    bench.tick(1.0)
    assert stream.calls[-1] == "abort"
    assert "abort" not in lively.calls
    assert warnings_of(caplog) == ["handshake timeout: silent said too little within 30 s"]
    assert silent.ended
    assert bench.engine.kinds() == ["PeerJoined"]  # the engine never heard of the silent one


def test_ten_thousand_silent_connections_need_one_timer(bench: HostBench) -> None:
    streams = [bench.open(joined=False)[1] for _ in range(10_000)]
    assert len(bench.wakes) == 1
    bench.tick(30.0)
    assert all(stream.calls[-1] == "abort" for stream in streams)
    assert len(bench.wakes) == 1


def test_a_place_to_which_there_is_an_alternative_has_less_time(bench: HostBench) -> None:
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
    assert bench.told == [("ended", False, "takes connections and does not answer")]
    assert bench.connects == 1
    bench.tick(28.9)
    assert len(bench.told) == 1
    bench.tick(0.1)
    assert len(bench.told) == 2  # the first one, which had all the time of others


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
    bench.host.closed(link, "")  # the engine knows of this one, and asks itself
    assert bench.connects == 3
    link, _ = bench.open(accepted=True, joined=False)
    bench.host.closed(link, "")
    assert bench.connects == 3


def test_why_a_peer_did_not_get_through_its_handshake_is_logged(
    bench: HostBench, caplog: pytest.LogCaptureFixture
) -> None:
    """Who dials gets an error; the side that listens has only its log."""
    for accepted, joined, reason in (
        (True, False, ""),  # it looked in, and went
        (True, True, "the connection broke"),
        (False, False, "the peer does not speak TLS"),
    ):
        link, _ = bench.open(accepted=accepted, joined=joined)
        bench.host.closed(link, reason)
    assert not caplog.records
    link, _ = bench.open("bad", accepted=True, joined=False)
    bench.host.closed(link, "the peer does not speak TLS")
    assert warnings_of(caplog) == ["handshake failed: bad: the peer does not speak TLS"]


# --- violations -----------------------------------------------------------------------------------
def test_a_violation_costs_the_peer_its_connection_and_nobody_else(
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


def test_what_is_sent_to_a_link_that_ended_goes_nowhere(bench: HostBench) -> None:
    link, stream = bench.open()
    bench.host.received(link, b"!\n")
    before = list(stream.calls)
    bench.engine.script = lambda event: [Send(link, [b"x"])]
    bench.host.submit(Drain())
    bench.host.flush()
    assert stream.calls == before
    assert link.size == 0
    assert not link.out


def test_warnings_of_a_kind_come_once_a_second(
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


# --- peers that do not read -----------------------------------------------------------------------
def test_who_does_not_read_is_not_read_from() -> None:
    bench = HostBench(LinkLimits(output_size_max=56))
    link, stream = bench.open()
    bench.engine.script = echo
    bench.host.blocked(link)
    bench.host.blocked(link)
    bench.host.flush()
    assert "pause" not in stream.calls  # it may be busy with one large message, and has more to say
    assert bench.engine.kinds() == ["PeerJoined", "PeerBlocked"]
    assert bench.told == [("flow", False)]
    bench.host.received(link, b"one\ntwo\n")
    bench.host.flush()
    assert stream.calls[-1] == "pause"
    assert stream.written == b"hello\n"  # the output stays here
    assert link.size == 8
    bench.host.writable(link)
    assert stream.written == b"hello\none\ntwo\n"
    assert stream.calls[-1] == "resume"
    assert bench.engine.inputs[-1] == PeerWritable(link)
    assert bench.told == [("flow", False), ("flow", True)]


def test_the_side_that_dialled_reads_on(bench: HostBench) -> None:
    link, stream = bench.open(accepted=False)
    bench.host.blocked(link)
    bench.host.writable(link)
    assert "pause" not in stream.calls
    assert "resume" not in stream.calls
    assert bench.engine.inputs[1:] == [PeerBlocked(link), PeerWritable(link)]


def test_a_write_that_blocks_at_once_again_tells_the_engine_nothing(bench: HostBench) -> None:
    link, stream = bench.open()
    bench.engine.script = echo
    bench.host.blocked(link)
    bench.host.received(link, b"much\n")
    stream.on_write = lambda: bench.host.blocked(link)
    bench.host.writable(link)
    assert bench.engine.kinds() == ["PeerJoined", "PeerBlocked", "Received"]
    assert "resume" not in stream.calls


def test_blocking_inside_a_flush_is_told_and_what_comes_of_it_is_flushed(bench: HostBench) -> None:
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


def test_more_than_the_limit_costs_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    bench = HostBench(LinkLimits(output_size_max=10))
    link, stream = bench.open("slow")
    bench.engine.script = lambda event: (
        [Send(link, [b"0123456789"])] if isinstance(event, Cancel) else []
    )
    bench.host.submit(Cancel(1))
    bench.host.flush()  # 11 bytes, but they leave
    assert stream.calls[-1] == b"0123456789\n"
    bench.host.blocked(link)
    bench.host.submit(Cancel(2))
    bench.host.flush()
    assert stream.calls[-1] == "abort"
    assert bench.engine.inputs[-1] == PeerLost(link, "does not read: 11 bytes wait for it")
    assert warnings_of(caplog) == ["output limit: slow does not read: 11 bytes wait for it"]
    assert bench.told[-1] == ("ended", True, "does not read: 11 bytes wait for it")
    assert ("flow", True) in bench.told  # nobody pushes back any more
    bench.host.closed(link, "")
    assert bench.engine.kinds().count("PeerLost") == 1


def test_flow_is_told_for_all_links_together(bench: HostBench) -> None:
    one, _ = bench.open("one")
    two, _ = bench.open("two")
    bench.host.blocked(one)
    bench.host.blocked(two)
    bench.host.writable(one)
    assert bench.told == [("flow", False)]
    bench.host.closed(two, "reset")
    assert ("flow", True) in bench.told


# --- push-back by the engine ----------------------------------------------------------------------
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


def test_a_link_is_read_from_when_neither_engine_nor_host_objects() -> None:
    bench = HostBench(LinkLimits(output_size_max=56))
    link, stream = bench.open()
    bench.host.blocked(link)
    perform(bench, StopReading(link), Send(link, [b"12345678"]))
    bench.host.flush()
    assert stream.calls.count("pause") == 1
    perform(bench, ResumeReading(link))
    assert "resume" not in stream.calls  # its output still waits
    perform(bench, StopReading(link))
    bench.host.writable(link)
    assert "resume" not in stream.calls
    perform(bench, ResumeReading(link))
    assert stream.calls[-1] == "resume"


def test_reading_of_a_link_that_ended_is_nobodys_business(bench: HostBench) -> None:
    link, stream = bench.open()
    perform(bench, StopReading(link))
    bench.host.closed(link, "reset")
    calls = list(stream.calls)
    perform(bench, ResumeReading(link), StopReading(link))
    assert stream.calls == calls


# --- places ---------------------------------------------------------------------------------------
def test_the_engine_is_told_by_which_address_a_peer_came(bench: HostBench) -> None:
    framing = LineFraming()
    framing.ready = True
    link = bench.host.opened(FakeStream(), framing=framing, place="the back")
    assert bench.engine.inputs == [PeerJoined(link, b"", "the back")]


def test_a_kept_connection_is_not_asked_for_again(bench: HostBench) -> None:
    link = bench.host.opened(FakeStream(), kept=True)
    bench.host.closed(link, "refused")
    assert bench.connects == 0
    assert bench.told[0] == ("ended", False, "refused")


# --- ends that are ours ---------------------------------------------------------------------------
def test_disconnect_sends_what_is_queued_and_is_not_echoed(bench: HostBench) -> None:
    link, stream = bench.open()
    bench.engine.script = lambda event: (
        [Send(link, [b"goodbye"]), Disconnect(link, "enough"), Send(link, [b"never"])]
        if isinstance(event, Drain)
        else []
    )
    bench.host.submit(Drain())
    assert stream.calls[-2:] == [b"goodbye\n.\n", "close"]
    bench.host.submit(Drain())  # a second one does nothing
    bench.host.received(link, b"too late\n")
    bench.host.closed(link, "")
    bench.host.flush()
    assert stream.calls[-2:] == [b"goodbye\n.\n", "close"]
    assert "PeerLost" not in bench.engine.kinds()
    assert bench.told == [("ended", True, "enough"), ("released", link)]


def test_a_close_that_does_not_end_is_ended(bench: HostBench) -> None:
    link, stream = bench.open()
    bench.host.blocked(link)
    bench.engine.script = lambda event: [Disconnect(link, "")] if isinstance(event, Drain) else []
    bench.host.submit(Drain())
    assert stream.calls[-1] == "close"
    bench.tick(4.9)
    assert stream.calls[-1] == "close"
    bench.tick(0.1)
    assert stream.calls[-1] == "abort"


def test_shut_lets_everything_out_and_tells_the_engine_nothing(bench: HostBench) -> None:
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


# --- identities -----------------------------------------------------------------------------------
def test_a_router_names_its_peers(caplog: pytest.LogCaptureFixture) -> None:
    bench = HostBench(identities=IdentityTable(start=7))
    ann, _ = bench.open("ann")
    nobody, _ = bench.open(joined=False)
    bench.host.received(nobody, b"\n")
    assert bench.engine.inputs == [PeerJoined(ann, b"ann"), PeerJoined(nobody, b"\0\0\0\0\7")]
    second, second_stream = bench.open("ann")
    assert second_stream.calls[-1] == "close"
    assert len(bench.engine.inputs) == 2
    assert warnings_of(caplog) == [
        "identity refused: ann: identity b'ann' is in use by another peer"
    ]
    bench.host.closed(second, "")
    bench.host.closed(ann, "")
    third, _ = bench.open("ann")  # free again; the refused one did not take it away
    assert bench.engine.inputs[-1] == PeerJoined(third, b"ann")


def test_with_handover_the_newcomer_has_the_identity() -> None:
    bench = HostBench(identities=IdentityTable(start=7, handover=True))
    first, first_stream = bench.open("ann")
    second, _ = bench.open("ann")
    assert first_stream.calls[-1] == "abort"
    assert bench.engine.kinds() == ["PeerJoined", "PeerLost", "PeerJoined"]
    bench.host.closed(first, "")
    third, _ = bench.open("ann")
    assert bench.engine.inputs[-1] == PeerJoined(third, b"ann")
    assert second.ended


def test_what_waits_for_a_peer_that_we_dialled_has_no_limit() -> None:
    bench = HostBench(LinkLimits(output_size_max=10))
    link, stream = bench.open("broker", accepted=False)
    bench.engine.script = lambda event: (
        [Send(link, [b"0123456789"])] if isinstance(event, Cancel) else []
    )
    bench.host.blocked(link)
    bench.host.submit(Cancel(1))
    bench.host.submit(Cancel(2))
    bench.host.flush()
    assert "abort" not in stream.calls
    bench.host.writable(link)
    assert stream.calls[-1] == b"0123456789\n" * 2


def test_a_long_text_is_not_logged_in_full(caplog: pytest.LogCaptureFixture) -> None:
    bench = HostBench()
    bench.engine.script = lambda event: [Warn("odd", "x" * 10_000_000)]
    bench.host.submit(Cancel(1))
    assert warnings_of(caplog) == ["odd: " + "x" * 1000 + "… (10000000 characters)"]


def test_an_interrupted_flush_does_not_stop_the_output_that_follows() -> None:
    bench = HostBench()
    link, stream = bench.open()
    bench.engine.script = lambda event: [Send(link, [b"data"])]

    def interrupt() -> None:
        raise KeyboardInterrupt

    stream.on_write = interrupt
    bench.host.submit(Cancel(1))
    with pytest.raises(KeyboardInterrupt):
        bench.host.flush()
    stream.on_write = None
    wanted = bench.flushes_wanted
    bench.host.submit(Cancel(2))
    assert bench.flushes_wanted == wanted + 1
    bench.host.flush()
    assert stream.calls[-1] == b"data\n"
