"""No bytes from a peer make an SP engine raise an error, or leave state behind (I9, I13)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.support.sp_engines import DeviceBench, RepBench, ReqBench, tag, way

PIECES = st.sampled_from([b"", b"\x80", way(446), way(7), tag(5), tag(6), b"body", bytes(40)])
PAYLOADS = st.lists(
    st.one_of(st.binary(max_size=20), st.lists(PIECES, max_size=12).map(b"".join)), max_size=20
)


@given(PAYLOADS, PAYLOADS)
def test_a_client_accepts_or_counts_any_replies(before: list[bytes], after: list[bytes]) -> None:
    bench = ReqBench(first_id=5)
    bench.join()
    bench.say("a", *before)
    bench.submit(1)
    bench.say("a", *after)
    ours = [payload for payload in after if payload[:4] == tag(5)]
    assert [reply.frames for reply in bench.replies.values()] == [(p[4:],) for p in ours[:1]]
    snapshot = bench.client.snapshot()
    assert snapshot.malformed + snapshot.stray == len(before) + len(after) - len(ours[:1])


@given(PAYLOADS)
def test_a_worker_accepts_or_counts_any_requests(payloads: list[bytes]) -> None:
    bench = RepBench(capacity=100)
    bench.join()
    bench.say("c", *payloads)
    assert len(bench.running) + sum(bench.worker.snapshot().dropped.values()) == len(payloads)
    while bench.running:
        bench.finish(bench.running[0], b"")
    assert [sent.payload for sent in bench.sent] == [
        payload[: len(payload) - len(request.body)]
        for payload, request in zip(
            [p for p in payloads if is_request(p)], bench.requests.values(), strict=True
        )
    ]
    bench.assert_empty()


def is_request(payload: bytes, tags: int = 8) -> bool:
    """Return whether one of the first `tags` tags has its top bit set."""
    firsts = [payload[at] for at in range(0, len(payload) - 3, 4)][:tags]
    return any(first & 0x80 for first in firsts)


@given(PAYLOADS, PAYLOADS)
def test_a_device_forwards_or_counts_any_messages(
    requests: list[bytes], replies: list[bytes]
) -> None:
    bench = DeviceBench(first_id=446)
    bench.front("c")
    bench.back("s")
    bench.say("c", *requests)
    bench.say("s", *replies)
    snapshot = bench.device.snapshot()
    passed = snapshot.requests + snapshot.replies
    assert len(bench.sent) == passed
    assert passed + sum(snapshot.dropped.values()) == len(requests) + len(replies)
    assert all(len(sent.payload) >= 4 for sent in bench.sent)
    assert bench.to("s") == [way(446) + payload for payload in requests if is_request(payload, 7)]
    bench.assert_empty()
