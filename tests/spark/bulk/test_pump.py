"""The pump of a task: windows, services that are down, retries, the rate."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from time import monotonic
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.spark.bulk.planned import JOB, plan
from tests.support.live import eventually

from requite.client.call_arguments import Taker
from requite.errors import CallError, CallTimeout, Cancelled, NoService, RemoteFailure
from requite.request import Reply, RetryPolicy
from requite.shell import clock
from requite.shell.aio import new_event_loop
from requite.spark.bulk.plan import Connection
from requite.spark.bulk.pump import Outcome, Pump, Window
from requite.spark.bulk.rate import Bucket
from requite.spark.bulk.service_state import Job, ServiceState, ServiceStates


# --- the pump -------------------------------------------------------------------------------------
class FakeClient:
    """A fake client on an event loop in a thread; tests answer its requests."""

    def __init__(self) -> None:
        self.loop = new_event_loop()
        self.out: dict[bytes, Taker] = {}
        self.cancelled: set[Taker] = set()
        self.starts: Counter[bytes] = Counter()
        self.most = 0
        self.fail_with: Exception | None = None
        self._thread = threading.Thread(target=self.loop.run_forever)
        self._thread.start()

    def start_for(self, taker: Taker, body: bytes, **_: Any) -> None:
        if self.fail_with is not None:
            raise self.fail_with
        self.out[body] = taker
        self.starts[body] += 1
        self.most = max(self.most, sum(not one.done() for one in self.out.values()))

    def cancel_for(self, taker: Taker) -> None:
        self.cancelled.add(taker)
        if not taker.done():
            taker.set_exception(Cancelled("the caller cancelled the call"))

    def do(self, act: Callable[[], object]) -> None:
        """Call `act` on the loop, and wait until it has returned."""
        done = threading.Event()

        def step() -> None:
            act()
            self.loop.call_soon(done.set)

        self.loop.call_soon_threadsafe(step)
        assert done.wait(10)

    def await_retry(self, body: bytes, rows: Window) -> None:
        """Wait until a failed request is sent again, or the window is done."""
        eventually(lambda: rows.done.done() or not self.out[body].done(), f"{body!r} is sent again")

    def answer(self, body: bytes, error: CallError | None = None) -> None:
        """Answer one request, or end it with an error."""
        eventually(lambda: body in self.out, f"{body!r} is sent")
        taker = self.out[body]
        assert not taker.done()
        if error is None:
            self.do(lambda: taker.set_result(Reply([b"re:" + body])))
        else:
            self.do(lambda: taker.set_exception(error))

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(10)
        self.loop.close()


@pytest.fixture
def fake_client() -> Iterator[FakeClient]:
    client = FakeClient()
    yield client
    client.close()


def pump(
    fake: FakeClient, limit: int = 2, service_state: ServiceState | None = None, **more: Any
) -> Pump:
    client: Any = fake
    return Pump(fake.loop, client, plan(window=limit, **more), service_state or ServiceState())


def window(*bodies: bytes, sizes: list[int] | None = None) -> Window:
    ids = [b"%16d" % row for row in range(len(bodies))]
    rows = list(range(len(bodies)))
    return Window(rows, list(bodies), ids, sizes or [1] * len(bodies), [None] * len(bodies))


def test_the_limit_of_requests_in_flight_holds_across_windows(fake_client: FakeClient) -> None:
    pumping = pump(fake_client, limit=2)
    first, second = window(b"a", b"b", b"c"), window(b"d", b"e")
    pumping.offer(first)
    pumping.offer(second)
    for body in (b"b", b"a"):
        fake_client.answer(body)
    eventually(lambda: b"d" in fake_client.out, "the next window starts early")
    assert not first.done.done()
    for body in (b"c", b"d", b"e"):
        fake_client.answer(body)
    first.done.result(10)
    second.done.result(10)
    assert fake_client.most == 2
    assert [one and one.reply for one in first.outcomes] == [b"re:a", b"re:b", b"re:c"]


def test_a_large_body_is_in_flight_alone(fake_client: FakeClient) -> None:
    pumping = pump(fake_client, limit=10)
    bodies = window(b"a", b"b", b"c", sizes=[40 << 20, 1, 1])
    pumping.offer(bodies)
    fake_client.answer(b"a")
    fake_client.answer(b"b")
    fake_client.answer(b"c")
    bodies.done.result(10)
    assert fake_client.most == 2


def test_a_window_without_requests_is_done(fake_client: FakeClient) -> None:
    empty = window()
    pump(fake_client).offer(empty)
    assert empty.done.done()
    empty.done.result(0)  # raises nothing


def down() -> NoService:
    return NoService("nobody", may_have_executed=False)


def statuses(rows: Window) -> list[str | None]:
    return [one and one.status for one in rows.outcomes]


def test_no_row_is_sent_after_all_requests_in_flight_ended_unanswered(
    fake_client: FakeClient,
) -> None:
    rows = window(b"a", b"b", b"c", b"d")
    pump(fake_client, limit=2).offer(rows)
    fake_client.answer(b"a", down())
    fake_client.answer(b"b", down())
    rows.done.result(10)
    assert list(fake_client.out) == [b"a", b"b"], "no row replaces a request that ended unanswered"
    assert statuses(rows) == ["NoService"] * 4
    assert rows.outcomes[3] == Outcome(
        None, "NoService", 0, 0.0, False,
        "not sent: the 2 requests before it had no reply; the last error: nobody",
    )  # fmt: skip


def test_an_answer_resumes_sending(fake_client: FakeClient) -> None:
    rows = window(b"a", b"b", b"c", b"d")
    pump(fake_client, limit=2).offer(rows)
    fake_client.answer(b"a", down())
    assert list(fake_client.out) == [b"a", b"b"]
    for body in (b"b", b"c", b"d"):
        fake_client.answer(body)
    rows.done.result(10)
    assert statuses(rows) == ["NoService", "OK", "OK", "OK"]


def test_the_next_task_knows_that_the_service_is_down(fake_client: FakeClient) -> None:
    service_state = ServiceState()
    first, second = window(b"a", b"b", b"c"), window(b"d", b"e")
    pump(fake_client, service_state=service_state).offer(first)
    fake_client.answer(b"a", down())
    fake_client.answer(b"b", down())
    first.done.result(10)
    pump(fake_client, service_state=service_state).offer(second)
    second.done.result(10)
    assert list(fake_client.out) == [b"a", b"b"]
    assert [one and (one.status, one.attempts) for one in second.outcomes] == [("NoService", 0)] * 2


def test_a_late_failure_after_answers_does_not_stop_sending(
    fake_client: FakeClient,
) -> None:
    rows = window(b"a", b"b", b"c")
    pump(fake_client, limit=2).offer(rows)
    fake_client.answer(b"b")
    fake_client.answer(b"c")
    # The last request of its task fails; others were answered after it was sent.
    fake_client.answer(b"a", down())
    rows.done.result(10)
    more = window(b"d")
    pump(fake_client).offer(more)
    fake_client.answer(b"d")
    more.done.result(10)
    assert statuses(rows) == ["NoService", "OK", "OK"]


def test_timeouts_of_requests_that_may_have_run_do_not_stop_sending(
    fake_client: FakeClient,
) -> None:
    rows = window(b"a", b"b", b"c")
    pump(fake_client, limit=1).offer(rows)
    for body in (b"a", b"b", b"c"):
        fake_client.answer(body, CallTimeout("slow", may_have_executed=True, attempts=1))
    rows.done.result(10)
    assert statuses(rows) == ["CallTimeout"] * 3


def test_many_unanswered_requests_in_a_row_stop_sending(fake_client: FakeClient) -> None:
    """As after the broker was killed: each request in flight may have run, and none is answered."""
    bodies = [b"%d" % row for row in range(100)]
    rows = window(*bodies)
    pump(fake_client, limit=40).offer(rows)
    for body in bodies[:40]:
        fake_client.answer(body, CallTimeout("silent", may_have_executed=True, attempts=1))
    rows.done.result(10)
    assert list(fake_client.out) == bodies[:40]
    assert [one and one.may_have_executed for one in rows.outcomes] == [True] * 40 + [False] * 60


# --- retries --------------------------------------------------------------------------------------
AGAIN = {"retry_on": frozenset({"NoService", "CallTimeout"})}
QUICKLY = Connection("mdp://127.0.0.1:1/echo", retry=RetryPolicy(attempts=3, backoff=0.001))


def test_rows_are_retried_as_often_as_the_policy_allows(fake_client: FakeClient) -> None:
    rows = window(b"a")
    pump(fake_client, connection=QUICKLY, **AGAIN).offer(rows)
    for _ in range(3):
        fake_client.answer(b"a", NoService("nobody", may_have_executed=False, attempts=1))
        fake_client.await_retry(b"a", rows)
    rows.done.result(10)
    assert fake_client.starts[b"a"] == 3
    assert rows.outcomes[0] is not None
    assert rows.outcomes[0][:3] == (None, "NoService", 3)


def test_a_retried_row_counts_all_its_attempts(fake_client: FakeClient) -> None:
    rows = window(b"a", b"b")
    pump(fake_client, connection=QUICKLY, **AGAIN).offer(rows)
    fake_client.answer(b"b")
    fake_client.answer(b"a", CallTimeout("slow", may_have_executed=True, attempts=2))
    fake_client.await_retry(b"a", rows)
    fake_client.answer(b"a")
    rows.done.result(10)
    assert rows.outcomes[0] is not None
    assert rows.outcomes[0][:3] == (b"re:a", "OK", 3)


def test_a_request_that_may_have_run_and_is_not_idempotent_is_not_retried(
    fake_client: FakeClient,
) -> None:
    rows = window(b"a", b"b")
    pump(fake_client, connection=QUICKLY, idempotent=False, **AGAIN).offer(rows)
    fake_client.answer(b"a", CallTimeout("slow", may_have_executed=True, attempts=1))
    fake_client.answer(b"b", CallTimeout("queued", may_have_executed=False, attempts=1))
    fake_client.await_retry(b"b", rows)
    fake_client.answer(b"b")
    rows.done.result(10)
    assert fake_client.starts == {b"a": 1, b"b": 2}
    assert statuses(rows) == ["CallTimeout", "OK"]


def test_a_status_that_is_not_in_retry_on_is_final(fake_client: FakeClient) -> None:
    rows = window(b"a")
    pump(fake_client, connection=QUICKLY, **AGAIN).offer(rows)
    fake_client.answer(b"a", RemoteFailure("no"))
    rows.done.result(10)
    assert fake_client.starts == {b"a": 1}


def test_a_service_is_down_after_its_last_retry_failed(fake_client: FakeClient) -> None:
    rows = window(b"a", b"b")
    pump(fake_client, limit=1, connection=QUICKLY, **AGAIN).offer(rows)
    for _ in range(3):
        fake_client.answer(b"a", down())
        fake_client.await_retry(b"a", rows)
    rows.done.result(10)
    assert fake_client.starts == {b"a": 3}
    assert statuses(rows) == ["NoService"] * 2


# --- the rate -------------------------------------------------------------------------------------
@given(st.floats(0.1, 10_000), st.lists(st.floats(0, 2), max_size=200))
def test_a_bucket_never_exceeds_its_rate(rate: float, pauses: list[float]) -> None:
    bucket, now, taken = Bucket(rate, 0.0), 0.0, 0
    for pause in pauses:
        now += pause
        while not (wait_s := bucket.take(now)):
            taken += 1
        assert 0 < wait_s <= 1 / rate + 1e-6
    assert taken <= 1 + rate * now + 1e-6
    if pauses and now > pauses[-1]:
        assert taken >= 1


def test_tasks_of_a_job_share_a_rate(fake_client: FakeClient) -> None:
    service_state = ServiceState(Bucket(20.0, clock.now()))
    begin = monotonic()
    for body in (b"a", b"b", b"c", b"d", b"e"):
        rows = window(body)
        pump(fake_client, service_state=service_state).offer(rows)
        fake_client.answer(body)
        rows.done.result(10)
    assert monotonic() - begin >= 0.19, "five requests at twenty per second"


def test_each_job_and_stage_has_a_service_state() -> None:
    service_states = ServiceStates()
    first = service_states.of(Job(JOB, 1), None, 0.0)
    assert service_states.of(Job(JOB, 1), None, 0.0) is first
    assert service_states.of(Job(JOB, 2), None, 0.0) is not first
    assert service_states.of(Job(UUID(int=8), 1), None, 0.0) is not first
    for stage in range(1000):
        service_states.of(Job(JOB, stage), None, 0.0)
        service_states.of(Job(JOB, None), None, 0.0)
    assert len(service_states) == 64


def test_an_error_reply_counts_as_an_answer(fake_client: FakeClient) -> None:
    rows = window(b"a", b"b", b"c", b"d")
    pump(fake_client, limit=2).offer(rows)
    fake_client.answer(b"a", down())
    fake_client.answer(b"b", RemoteFailure("no"))
    fake_client.answer(b"c", down())
    fake_client.answer(b"d")
    rows.done.result(10)
    assert list(fake_client.out) == [b"a", b"b", b"c", b"d"]


def test_without_give_up_all_rows_are_sent(fake_client: FakeClient) -> None:
    rows = window(b"a", b"b", b"c")
    pump(fake_client, limit=1, give_up=False).offer(rows)
    for body in (b"a", b"b", b"c"):
        fake_client.answer(body, down())
    rows.done.result(10)
    assert len(fake_client.out) == 3


def test_a_stopped_pump_cancels_its_requests_in_flight(fake_client: FakeClient) -> None:
    rows = window(b"a", b"b", b"c")
    pumping = pump(fake_client, limit=2)
    pumping.offer(rows)
    eventually(lambda: len(fake_client.out) == 2, "two requests are in flight")
    pumping.stop()
    eventually(lambda: fake_client.cancelled == set(fake_client.out.values()), "both are cancelled")
    assert all(taker.done() for taker in fake_client.out.values()), (
        "the pump does not wait for them to end"
    )
    assert not rows.done.done()
    assert len(fake_client.out) == 2


def test_an_unexpected_exception_reaches_the_task(fake_client: FakeClient) -> None:
    fake_client.fail_with = ZeroDivisionError("a defect")
    rows = window(b"a")
    pump(fake_client).offer(rows)
    with pytest.raises(ZeroDivisionError, match="a defect"):
        rows.done.result(10)
