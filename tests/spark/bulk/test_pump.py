"""The pump of a task by itself: windows, a service that is down, retries, the rate."""

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

from requite.client.asking import Taker
from requite.errors import CallError, CallTimeout, Cancelled, NoService, RemoteFailure
from requite.request import Reply, RetryPolicy
from requite.shell import clock
from requite.shell.aio import new_event_loop
from requite.spark.bulk.plan import Connection
from requite.spark.bulk.pump import Outcome, Pump, Window
from requite.spark.bulk.rate import Bucket
from requite.spark.bulk.service_state import Job, ServiceState, ServiceStates


# --- the pump -------------------------------------------------------------------------------------
class Service:
    """Stands for a client on an event loop in a thread: answers when it is told to."""

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
        """Do something on the loop, and wait for it."""
        done = threading.Event()

        def step() -> None:
            act()
            self.loop.call_soon(done.set)

        self.loop.call_soon_threadsafe(step)
        assert done.wait(10)

    def sent_again(self, body: bytes, rows: Window) -> None:
        """Wait until a request whose last try has ended is sent once more, or is over."""
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
def far_end() -> Iterator[Service]:
    service = Service()
    yield service
    service.close()


def pump(
    service: Service, limit: int = 2, service_state: ServiceState | None = None, **more: Any
) -> Pump:
    client: Any = service
    return Pump(service.loop, client, plan(window=limit, **more), service_state or ServiceState())


def window(*bodies: bytes, sizes: list[int] | None = None) -> Window:
    ids = [b"%16d" % row for row in range(len(bodies))]
    rows = list(range(len(bodies)))
    return Window(rows, list(bodies), ids, sizes or [1] * len(bodies), [None] * len(bodies))


def test_never_more_out_than_the_limit_over_the_end_of_a_window(far_end: Service) -> None:
    pumping = pump(far_end, limit=2)
    first, second = window(b"a", b"b", b"c"), window(b"d", b"e")
    pumping.offer(first)
    pumping.offer(second)
    for body in (b"b", b"a"):
        far_end.answer(body)
    eventually(lambda: b"d" in far_end.out, "the next window begins before the first has ended")
    assert not first.done.done()
    for body in (b"c", b"d", b"e"):
        far_end.answer(body)
    first.done.result(10)
    second.done.result(10)
    assert far_end.most == 2
    assert [one and one.reply for one in first.outcomes] == [b"re:a", b"re:b", b"re:c"]


def test_large_bodies_go_alone(far_end: Service) -> None:
    pumping = pump(far_end, limit=10)
    bodies = window(b"a", b"b", b"c", sizes=[40 << 20, 1, 1])
    pumping.offer(bodies)
    far_end.answer(b"a")
    far_end.answer(b"b")
    far_end.answer(b"c")
    bodies.done.result(10)
    assert far_end.most == 2


def test_a_window_without_requests_is_done(far_end: Service) -> None:
    empty = window()
    pump(far_end).offer(empty)
    assert empty.done.done()
    empty.done.result(0)  # raises nothing


def down() -> NoService:
    return NoService("nobody", may_have_executed=False)


def statuses(rows: Window) -> list[str | None]:
    return [one and one.status for one in rows.outcomes]


def test_rows_are_refused_once_all_that_were_out_ended_unanswered(far_end: Service) -> None:
    rows = window(b"a", b"b", b"c", b"d")
    pump(far_end, limit=2).offer(rows)
    far_end.answer(b"a", down())
    far_end.answer(b"b", down())
    rows.done.result(10)
    assert list(far_end.out) == [b"a", b"b"], "no row takes the place of one that ended so"
    assert statuses(rows) == ["NoService"] * 4
    assert rows.outcomes[3] == Outcome(
        None, "NoService", 0, 0.0, False,
        "not sent: the 2 requests before it had no reply; the last error: nobody",
    )  # fmt: skip


def test_an_answer_lets_rows_go_on_that_were_held_back(far_end: Service) -> None:
    rows = window(b"a", b"b", b"c", b"d")
    pump(far_end, limit=2).offer(rows)
    far_end.answer(b"a", down())
    assert list(far_end.out) == [b"a", b"b"]
    for body in (b"b", b"c", b"d"):
        far_end.answer(body)
    rows.done.result(10)
    assert statuses(rows) == ["NoService", "OK", "OK", "OK"]


def test_what_one_task_has_learnt_reaches_the_next(far_end: Service) -> None:
    service_state = ServiceState()
    first, second = window(b"a", b"b", b"c"), window(b"d", b"e")
    pump(far_end, service_state=service_state).offer(first)
    far_end.answer(b"a", down())
    far_end.answer(b"b", down())
    first.done.result(10)
    pump(far_end, service_state=service_state).offer(second)
    second.done.result(10)
    assert list(far_end.out) == [b"a", b"b"]
    assert [one and (one.status, one.attempts) for one in second.outcomes] == [("NoService", 0)] * 2


def test_a_late_failure_says_nothing_where_others_were_answered_meanwhile(
    far_end: Service,
) -> None:
    rows = window(b"a", b"b", b"c")
    pump(far_end, limit=2).offer(rows)
    far_end.answer(b"b")
    far_end.answer(b"c")
    far_end.answer(b"a", down())  # the last one of its task, and no reason to doubt the service
    rows.done.result(10)
    more = window(b"d")
    pump(far_end).offer(more)
    far_end.answer(b"d")
    more.done.result(10)
    assert statuses(rows) == ["NoService", "OK", "OK"]


def test_a_request_that_a_worker_may_have_had_is_no_reason_to_give_up(far_end: Service) -> None:
    rows = window(b"a", b"b", b"c")
    pump(far_end, limit=1).offer(rows)
    for body in (b"a", b"b", b"c"):
        far_end.answer(body, CallTimeout("slow", may_have_executed=True, attempts=1))
    rows.done.result(10)
    assert statuses(rows) == ["CallTimeout"] * 3


def test_many_requests_in_a_row_without_an_answer_are_one(far_end: Service) -> None:
    """As when a broker is killed: all that were out may have run, and nobody answers any more."""
    bodies = [b"%d" % row for row in range(100)]
    rows = window(*bodies)
    pump(far_end, limit=40).offer(rows)
    for body in bodies[:40]:
        far_end.answer(body, CallTimeout("silent", may_have_executed=True, attempts=1))
    rows.done.result(10)
    assert list(far_end.out) == bodies[:40]
    assert [one and one.may_have_executed for one in rows.outcomes] == [True] * 40 + [False] * 60


# --- rows that are tried again --------------------------------------------------------------------
AGAIN = {"retry_on": frozenset({"NoService", "CallTimeout"})}
QUICKLY = Connection("mdp://127.0.0.1:1/echo", retry=RetryPolicy(attempts=3, backoff=0.001))


def test_rows_are_tried_again_as_often_as_the_policy_says(far_end: Service) -> None:
    rows = window(b"a")
    pump(far_end, connection=QUICKLY, **AGAIN).offer(rows)
    for _ in range(3):
        far_end.answer(b"a", NoService("nobody", may_have_executed=False, attempts=1))
        far_end.sent_again(b"a", rows)
    rows.done.result(10)
    assert far_end.starts[b"a"] == 3
    assert rows.outcomes[0] is not None
    assert rows.outcomes[0][:3] == (None, "NoService", 3)


def test_a_row_that_is_answered_at_last_tells_all_its_attempts(far_end: Service) -> None:
    rows = window(b"a", b"b")
    pump(far_end, connection=QUICKLY, **AGAIN).offer(rows)
    far_end.answer(b"b")
    far_end.answer(b"a", CallTimeout("slow", may_have_executed=True, attempts=2))
    far_end.sent_again(b"a", rows)
    far_end.answer(b"a")
    rows.done.result(10)
    assert rows.outcomes[0] is not None
    assert rows.outcomes[0][:3] == (b"re:a", "OK", 3)


def test_what_may_have_run_and_must_not_run_twice_is_not_tried_again(far_end: Service) -> None:
    rows = window(b"a", b"b")
    pump(far_end, connection=QUICKLY, idempotent=False, **AGAIN).offer(rows)
    far_end.answer(b"a", CallTimeout("slow", may_have_executed=True, attempts=1))
    far_end.answer(b"b", CallTimeout("queued", may_have_executed=False, attempts=1))
    far_end.sent_again(b"b", rows)
    far_end.answer(b"b")
    rows.done.result(10)
    assert far_end.starts == {b"a": 1, b"b": 2}
    assert statuses(rows) == ["CallTimeout", "OK"]


def test_other_statuses_are_final(far_end: Service) -> None:
    rows = window(b"a")
    pump(far_end, connection=QUICKLY, **AGAIN).offer(rows)
    far_end.answer(b"a", RemoteFailure("no"))
    rows.done.result(10)
    assert far_end.starts == {b"a": 1}


def test_a_service_is_down_once_nothing_is_left_to_try(far_end: Service) -> None:
    rows = window(b"a", b"b")
    pump(far_end, limit=1, connection=QUICKLY, **AGAIN).offer(rows)
    for _ in range(3):
        far_end.answer(b"a", down())
        far_end.sent_again(b"a", rows)
    rows.done.result(10)
    assert far_end.starts == {b"a": 3}
    assert statuses(rows) == ["NoService"] * 2


# --- the rate -------------------------------------------------------------------------------------
@given(st.floats(0.1, 10_000), st.lists(st.floats(0, 2), max_size=200))
def test_a_rate_holds_over_any_time(rate: float, pauses: list[float]) -> None:
    bucket, now, taken = Bucket(rate, 0.0), 0.0, 0
    for pause in pauses:
        now += pause
        while not (wait_s := bucket.take(now)):
            taken += 1
        assert 0 < wait_s <= 1 / rate + 1e-6
    assert taken <= 1 + rate * now + 1e-6
    if pauses and now > pauses[-1]:
        assert taken >= 1


def test_tasks_of_a_job_share_a_rate(far_end: Service) -> None:
    service_state = ServiceState(Bucket(20.0, clock.now()))
    begin = monotonic()
    for body in (b"a", b"b", b"c", b"d", b"e"):
        rows = window(body)
        pump(far_end, service_state=service_state).offer(rows)
        far_end.answer(body)
        rows.done.result(10)
    assert monotonic() - begin >= 0.19, "five requests at twenty per second"


def test_service_states_are_those_of_a_job_and_a_stage() -> None:
    service_states = ServiceStates()
    first = service_states.of(Job(JOB, 1), None, 0.0)
    assert service_states.of(Job(JOB, 1), None, 0.0) is first
    assert service_states.of(Job(JOB, 2), None, 0.0) is not first
    assert service_states.of(Job(UUID(int=8), 1), None, 0.0) is not first
    for stage in range(1000):
        service_states.of(Job(JOB, stage), None, 0.0)
        service_states.of(Job(JOB, None), None, 0.0)
    assert len(service_states) == 64


def test_an_answer_of_any_kind_is_a_sign_of_life(far_end: Service) -> None:
    rows = window(b"a", b"b", b"c", b"d")
    pump(far_end, limit=2).offer(rows)
    far_end.answer(b"a", down())
    far_end.answer(b"b", RemoteFailure("no"))
    far_end.answer(b"c", down())
    far_end.answer(b"d")
    rows.done.result(10)
    assert list(far_end.out) == [b"a", b"b", b"c", b"d"]


def test_without_giving_up_all_rows_are_sent(far_end: Service) -> None:
    rows = window(b"a", b"b", b"c")
    pump(far_end, limit=1, give_up=False).offer(rows)
    for body in (b"a", b"b", b"c"):
        far_end.answer(body, down())
    rows.done.result(10)
    assert len(far_end.out) == 3


def test_a_stopped_pump_cancels_what_is_out(far_end: Service) -> None:
    rows = window(b"a", b"b", b"c")
    pumping = pump(far_end, limit=2)
    pumping.offer(rows)
    eventually(lambda: len(far_end.out) == 2, "two are out")
    pumping.stop()
    eventually(lambda: far_end.cancelled == set(far_end.out.values()), "both are cancelled")
    assert all(taker.done() for taker in far_end.out.values()), "nobody waits for their ends"
    assert not rows.done.done()
    assert len(far_end.out) == 2


def test_a_defect_reaches_the_task(far_end: Service) -> None:
    far_end.fail_with = ZeroDivisionError("a defect")
    rows = window(b"a")
    pump(far_end).offer(rows)
    with pytest.raises(ZeroDivisionError, match="a defect"):
        rows.done.result(10)
