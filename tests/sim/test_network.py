"""The simulated network treats bytes as TCP does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest

from requite.sim.kernel.medium import Chunking, Shape
from requite.sim.kernel.network import REFUSED, Network
from requite.sim.kernel.pipe import RESET, TIMED_OUT
from requite.sim.kernel.stream import KEEPALIVE, SimStream
from requite.sim.kernel.world import World


class End:
    """A stand-in for a process that records its input, unless it is frozen."""

    def __init__(self, name: str, network: Network) -> None:
        self.name = name
        self.network = network
        self.life = 1
        self.frozen = False
        self.streams: dict[SimStream, None] = {}
        self.chunks: list[bytes] = []
        self.events: list[str] = []

    @property
    def data(self) -> bytes:
        return b"".join(self.chunks)

    def own(self, stream: SimStream) -> None:
        self.streams[stream] = None
        stream.start(self, stream)
        self.stream = stream

    accept = own

    def has_io(self, stream: SimStream) -> None:
        if stream in self.streams and not self.frozen:
            stream.hand_over()

    def thaw(self) -> None:
        self.frozen = False
        self.has_io(self.stream)

    def received(self, _link: Any, chunk: bytes) -> None:
        self.chunks.append(chunk)

    def blocked(self, _link: Any) -> None:
        self.events.append("blocked")

    def writable(self, _link: Any) -> None:
        self.events.append("writable")

    def closed(self, _link: Any, reason: str) -> None:
        self.events.append(f"closed {reason}".strip())


class Pair:
    """A connection from `left` to `right`."""

    def __init__(self, **shape: Any) -> None:
        self.world = World(0)
        self.network = Network(self.world, Shape(**shape))
        self.left, self.right = End("left", self.network), End("right", self.network)
        self.network.listen(self.right)  # type: ignore[arg-type]
        self.failed: list[str] = []
        self.dial()

    def dial(self) -> None:
        left: Any = self.left
        self.network.dial(left, "right", left.own, self.failed.append)
        self.world.run(self.world.now + 1)

    def run(self, for_s: float = 1.0) -> None:
        self.world.run(self.world.now + for_s)


@pytest.fixture
def pair() -> Iterator[Pair]:
    pair = Pair()
    yield pair
    assert pair.world.now < 1000


@pytest.mark.parametrize("chunking", Chunking)
def test_bytes_arrive_in_order_wherever_they_are_cut(chunking: Chunking) -> None:
    pair = Pair(chunking=chunking, jitter_s=0.01)
    sent = [bytes([n]) * (n + 1) for n in range(200)]
    for data in sent:
        pair.left.stream.write(data)
        pair.run(0.001)
    pair.run(5)
    assert pair.right.data == b"".join(sent)
    is_cut = pair.right.chunks != sent
    assert is_cut or chunking is Chunking.WHOLE


def test_bytes_written_before_a_close_arrive_before_it(pair: Pair) -> None:
    pair.left.stream.write(b"last words")
    pair.left.stream.close()
    pair.run()
    assert pair.right.data == b"last words"
    assert pair.right.events == ["closed"]
    assert pair.left.events == ["closed"]


def test_an_abort_loses_bytes_in_flight(pair: Pair) -> None:
    pair.left.stream.write(b"lost")
    pair.left.stream.abort()
    pair.run()
    assert pair.right.data == b""
    assert pair.right.events == [f"closed {RESET}"]


def test_a_reset_loses_some_of_the_bytes_in_flight() -> None:
    arrived = set()
    pair = Pair()
    for _ in range(50):
        pair.left.stream.write(b"0123456789")
        pair.network.reset(pair.left.stream)
        pair.run()
        assert b"0123456789".startswith(pair.right.data)
        assert pair.right.events[-1] == pair.left.events[-1] == f"closed {RESET}"
        arrived.add(len(pair.right.data))
        pair.right.chunks.clear()
        pair.dial()
    assert len(arrived) > 5


def test_a_partition_holds_bytes_until_it_ends(pair: Pair) -> None:
    pair.network.cut("left", "right")
    pair.left.stream.write(b"late")
    pair.run(5)
    assert pair.right.data == b""
    pair.network.mend("left", "right")
    pair.run()
    assert pair.right.data == b"late"
    pair.run(20)
    assert pair.left.events == []


@pytest.mark.parametrize(("source", "sink"), [("left", "right"), ("right", "left")])
def test_an_unacknowledged_sender_times_out_and_leaves_a_half_open_connection(
    source: str, sink: str
) -> None:
    pair = Pair(retransmit_s=3.0, keepalive_s=6.0)
    pair.network.cut(source, sink)
    pair.left.stream.write(b"data")
    pair.run(4)
    assert pair.left.events == [f"closed {TIMED_OUT}"]
    assert pair.right.data == (b"data" if source == "right" else b"")
    assert pair.right.events == []
    pair.run(6)
    assert pair.right.events == [f"closed {KEEPALIVE}"]


def test_a_write_to_a_half_open_connection_is_reset(pair: Pair) -> None:
    pair.left.stream.vanish()
    pair.left.streams.clear()
    pair.run()
    assert pair.right.events == []
    pair.right.stream.write(b"anybody?")
    pair.run()
    assert pair.right.events == [f"closed {RESET}"]


def test_a_machine_without_power_sends_no_reset() -> None:
    pair = Pair(retransmit_s=3.0)
    pair.network.power_off("left")
    pair.left.stream.vanish()
    pair.right.stream.write(b"anybody?")
    pair.run(2)
    assert pair.right.events == []
    pair.run(2)
    assert pair.right.events == [f"closed {TIMED_OUT}"]


def test_a_clog_delays_bytes_without_breaking_the_connection() -> None:
    pair = Pair(retransmit_s=1.0)
    pair.network.clog("left", "right")
    pair.left.stream.write(b"slow")
    pair.run(10)
    assert pair.right.data == b""
    pair.network.unclog("left", "right")
    pair.run()
    assert pair.right.data == b"slow"
    assert pair.left.events == []


def test_a_paused_reader_blocks_the_writer() -> None:
    pair = Pair(buffer_size=1000)
    pair.right.stream.pause_reading()
    for _ in range(20):
        pair.left.stream.write(b"x" * 100)
    assert pair.left.events == ["blocked"]
    pair.run()
    assert pair.right.data == b""
    pair.right.stream.resume_reading()
    pair.run()
    assert len(pair.right.data) == 2000
    assert pair.left.events == ["blocked", "writable"]


def test_a_held_stream_reads_nothing_until_it_is_released() -> None:
    pair = Pair(buffer_size=1000)
    pair.right.stream.hold()
    for _ in range(20):
        pair.left.stream.write(b"x" * 100)
    pair.right.stream.resume_reading()  # has no effect while the stream is held
    pair.run()
    assert pair.right.data == b""
    assert pair.left.events == ["blocked"]
    pair.right.stream.let_go()
    pair.run()
    assert len(pair.right.data) == 2000
    assert pair.left.events == ["blocked", "writable"]


def test_a_process_listens_at_several_ports_of_its_node(pair: Pair) -> None:
    taken: dict[str, list[SimStream]] = {"front": [], "back": []}
    left, right = cast(Any, pair.left), cast(Any, pair.right)
    for port, streams in taken.items():
        pair.network.listen(right, port, streams.append)
    for port in taken:
        pair.network.dial(left, f"right:{port}", left.own, pair.failed.append)
        pair.run()
    assert [len(streams) for streams in taken.values()] == [1, 1]
    pair.network.listen_no_more(right)
    for address in ("right", "right:front", "right:back"):
        pair.network.dial(left, address, left.own, pair.failed.append)
    pair.run()
    assert pair.failed == [REFUSED] * 3


def test_a_thawed_process_reads_everything_at_once(pair: Pair) -> None:
    pair.right.frozen = True
    for _ in range(3):
        pair.left.stream.write(b"abc")
        pair.run()
    pair.left.stream.close()
    pair.run()
    assert pair.right.events == []
    pair.right.thaw()
    pair.run()
    assert pair.right.chunks == [b"abcabcabc"]
    assert pair.right.events == ["closed"]


def test_a_close_with_bytes_unread_is_a_reset(pair: Pair) -> None:
    pair.right.stream.pause_reading()
    pair.left.stream.write(b"unread")
    pair.run()
    pair.right.stream.close()
    pair.run()
    assert pair.left.events == [f"closed {RESET}"]


def test_a_dial_is_refused_or_times_out() -> None:
    pair = Pair(connect_timeout_s=2.0)
    left: Any = pair.left
    pair.network.dial(left, "nowhere", left.own, pair.failed.append)
    pair.run(0.5)
    assert pair.failed == ["connection refused"]
    pair.network.cut("left", "right")
    pair.network.dial(left, "right", left.own, pair.failed.append)
    pair.run(3)
    assert pair.failed[1:] == ["nobody answers"]


def test_the_kernel_of_a_frozen_process_answers_keepalive() -> None:
    pair = Pair(retransmit_s=1.0, keepalive_s=3.0)
    pair.left.frozen = True
    pair.network.cut("left", "right")
    pair.left.stream.write(b"lost")
    pair.run(6)
    assert pair.left.events == []
    assert pair.right.events == [f"closed {KEEPALIVE}"]
