"""The host: reading, effects, the timer, addresses and identities."""

from __future__ import annotations

from typing import Any

import pytest
from tests.shell.fakes import FakeStream, HostBench, LineFraming, ScriptedEngine, echo, warnings_of

from requite.engine import (
    Cancel,
    CancelHandler,
    Cause,
    Connect,
    Deliver,
    Disconnect,
    Drain,
    Fail,
    Note,
    PeerJoined,
    PeerLost,
    Received,
    Send,
    Stopped,
    Warn,
)
from requite.errors import CallTimeout, LocalViolation
from requite.framing import IdentityTable
from requite.shell.host import Host, LinkLimits


# --- reading --------------------------------------------------------------------------------------
def test_a_new_connection_gets_the_opening_and_joins_after_the_handshake(bench: HostBench) -> None:
    link, stream = bench.open("ann", joined=False)
    assert stream.calls == ["start", b"hello\n"]
    assert bench.engine.inputs == []
    bench.host.received(link, b"an")
    assert bench.engine.inputs == []
    bench.host.received(link, b"n\n")
    assert bench.engine.inputs == [PeerJoined(link, b"ann")]


def test_all_messages_of_a_chunk_are_one_input(bench: HostBench) -> None:
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


def test_output_of_the_framing_is_sent(bench: HostBench) -> None:
    link, stream = bench.open()
    bench.host.received(link, b"?\n")
    bench.host.flush()
    assert stream.calls[-1] == b"yes\n"


def test_the_end_is_reported_with_a_reason(bench: HostBench) -> None:
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


def test_a_farewell_is_answered_and_ends_the_connection_after_earlier_messages(
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


def test_a_farewell_on_an_ended_link_is_not_reported(bench: HostBench) -> None:
    link, stream = bench.open()
    bench.engine.script = lambda event: [Disconnect(link, "enough", Cause.DONE)]
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
        CancelHandler("t3", "nobody waits"),
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


def test_an_unsupported_effect_raises() -> None:
    engine = ScriptedEngine()
    host = Host(engine, lambda: 0.0, LineFraming, wake_at=print, want_flush=print)
    for effect in (
        Deliver("t", 1),
        Fail("t", CallTimeout("x")),
        Connect(),
        CancelHandler("t", "r"),
    ):
        engine.script = lambda event, effect=effect: [effect]
        with pytest.raises(LocalViolation, match="does not support"):
            host.submit(Drain())


def test_an_input_from_a_callback_waits_until_all_effects_are_performed() -> None:
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


def test_the_host_continues_after_an_exception_in_a_callback(bench: HostBench) -> None:
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
    bench.engine.at = 110.0  # later, so the wake at 105 remains
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
    assert bench.engine.kinds()[-1] == "Wake"  # all tuples without fields are equal
    assert bench.wakes == [105.0, 107.0]


def test_a_deadline_in_the_past_sets_the_timer_at_once(bench: HostBench) -> None:
    bench.engine.at = 0.0
    assert bench.host.next_at() == 0.0
    bench.host.wake()
    assert bench.engine.kinds() == ["Wake"]


# --- addresses ------------------------------------------------------------------------------------
def test_the_engine_is_told_the_address_of_a_peer(bench: HostBench) -> None:
    framing = LineFraming()
    framing.ready = True
    link = bench.host.opened(FakeStream(), framing=framing, place="the back")
    assert bench.engine.inputs == [PeerJoined(link, b"", "the back")]


def test_a_persistent_connection_is_not_requested_again(bench: HostBench) -> None:
    link = bench.host.opened(FakeStream(), kept=True)
    bench.host.closed(link, "refused")
    assert bench.connects == 0
    assert bench.told[0] == ("ended", False, "refused")


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
        "identity refused: ann: the identity b'ann' is in use by another peer"
    ]
    bench.host.closed(second, "")
    bench.host.closed(ann, "")
    third, _ = bench.open("ann")  # the name is free again, and the refused peer did not take it
    assert bench.engine.inputs[-1] == PeerJoined(third, b"ann")


def test_the_engine_gets_no_messages_of_a_peer_whose_identity_is_refused() -> None:
    bench = HostBench(identities=IdentityTable(start=7))
    bench.open("ann")
    second, _ = bench.open(joined=False)
    bench.host.received(second, b"ann\nhello\n")
    assert second.ended
    assert bench.engine.kinds() == ["PeerJoined"]


def test_with_handover_the_new_peer_gets_the_identity() -> None:
    bench = HostBench(identities=IdentityTable(start=7, handover=True))
    first, first_stream = bench.open("ann")
    second, _ = bench.open("ann")
    assert first_stream.calls[-1] == "abort"
    assert bench.engine.kinds() == ["PeerJoined", "PeerLost", "PeerJoined"]
    bench.host.closed(first, "")
    third, _ = bench.open("ann")
    assert bench.engine.inputs[-1] == PeerJoined(third, b"ann")
    assert second.ended


def test_output_for_a_dialled_peer_has_no_limit() -> None:
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
