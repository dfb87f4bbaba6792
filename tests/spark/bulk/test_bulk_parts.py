"""The parts of a bulk call by themselves, without Spark: ids, windows, the pump, the clients."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from time import monotonic
from typing import Any
from uuid import UUID, uuid5

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.spark.bulk.services import Recorded
from tests.support.live import Live, MakeBroker, eventually

import requite
from requite.errors import CallError, CallTimeout, ConfigurationError, NoService, RemoteFailure
from requite.request import Reply, RetryPolicy
from requite.shell import clock
from requite.shell.aio import new_event_loop
from requite.spark.bulk.client import Clients
from requite.spark.bulk.ids import id_text, job_id, position_names, repetitions, request_ids
from requite.spark.bulk.plan import Connection, Plan, share
from requite.spark.bulk.pump import Outcome, Pump, Window
from requite.spark.bulk.rate import Bucket
from requite.spark.bulk.rows import Batch
from requite.spark.bulk.standing import Job, Standing, Standings
from requite.spark.bulk.task import Task, call_batches

JOB = UUID(int=7)


# --- ids ------------------------------------------------------------------------------------------
@given(st.uuids(), st.lists(st.text()))
def test_ids_are_uuids_of_version_5(job: UUID, names: list[str]) -> None:
    ids = request_ids(job, [name.encode() for name in names])
    expected = [uuid5(job, name) for name in names]
    assert ids == [one.bytes for one in expected]
    assert list(map(id_text, ids)) == list(map(str, expected))


def test_what_has_no_name_has_no_id() -> None:
    assert request_ids(JOB, [None, b""]) == [b"", uuid5(JOB, "").bytes]


def test_positions_differ_in_everything() -> None:
    names = [
        name
        for scope in ("", "1")
        for partition in (0, 1, 10)
        for first_row in (0, 5)
        for name in position_names(scope, partition, first_row, 5)
    ]
    assert len(set(names)) == 60


@given(st.lists(st.sampled_from([b"", b"a", b"b", b"c"])))
def test_repetitions_name_the_first(ids: list[bytes]) -> None:
    found = repetitions(ids)
    for row, one in enumerate(ids):
        first = ids.index(one)
        assert found.get(row, row) == (first if one else row)


def test_jobs() -> None:
    assert job_id("a") == job_id("a") != job_id("b")
    assert job_id(JOB) == JOB
    assert job_id(None) != job_id(None)


# --- the cap --------------------------------------------------------------------------------------
@given(st.integers(1, 500), st.integers(1, 64), st.integers(1, 1000))
def test_shares_keep_to_the_cap(cap: int, slots: int, window: int) -> None:
    if cap < slots:
        with pytest.raises(ConfigurationError, match="less than one request"):
            share(cap, slots, window)
        return
    each = share(cap, slots, window)
    assert 1 <= each <= window
    assert each * slots <= cap
    assert share(None, slots, window) == window


# --- rows -----------------------------------------------------------------------------------------
def plan(**more: Any) -> Plan:
    connection = Connection("mdp://127.0.0.1:1/echo")
    settings = {"connection": connection, "body": 1, "key": 0, "kept": 2, "window": 3} | more
    return Plan(job=JOB, **settings)


def answered(batch: Batch) -> list[dict[str, Any]]:
    """Answer every request with its own body, and return the rows."""
    rows = []
    for start, stop, window in batch.windows():
        for row in window.rows:
            body = bytes(window.bodies[row])
            window.outcomes[row] = Outcome(body, "OK", 1, 0.25, True, None)
        for part in batch.finished(start, stop):
            rows += part.to_pylist()
    return rows


keys = st.one_of(st.none(), st.integers(0, 5))
bodies = st.one_of(st.none(), st.sampled_from([b"a", b"b"]))


@given(st.lists(st.tuples(keys, bodies)), st.integers(1, 5))
def test_every_row_comes_out_in_its_place(rows: list[tuple[Any, Any]], window: int) -> None:
    schema = pa.schema([("key", pa.int64()), ("body", pa.binary())])
    table = [dict(zip(schema.names, row, strict=True)) for row in rows]
    arrow = pa.RecordBatch.from_pylist(table, schema)
    out = answered(Batch(arrow, plan(window=window), partition=0, first_row=0))
    assert [(row["key"], row["body"]) for row in out] == rows
    first: dict[int, Any] = {}
    for row in out:
        known = row["key"] is not None and row["body"] is not None
        same = known and first.setdefault(row["key"], row["body"]) == row["body"]
        if row["status"] == "OK":
            assert same
            assert (row["reply"], row["elapsed_ms"]) == (row["body"], 250.0)
        else:
            assert (row["status"], row["reply"]) == ("BadRow", None)
            assert row["error"]
            assert not row["may_have_executed"]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])
def test_bodies_of_any_width(kind: pa.DataType) -> None:
    arrow = pa.record_batch({"key": pa.array(["x"]), "body": pa.array(["é"]).cast(kind)})
    assert [row["reply"] for row in answered(Batch(arrow, plan(), 0, 0))] == ["é".encode()]


def test_columns_that_were_added_for_the_call_are_left_out() -> None:
    arrow = pa.record_batch({"kept": [1], "key": ["x"], "body": ["y"]})
    [row] = answered(Batch(arrow, plan(key=1, body=2, kept=1, prefix="rq_"), 0, 0))
    assert list(row)[:2] == ["kept", "rq_reply"]
    assert "body" not in row


# --- the pump -------------------------------------------------------------------------------------
class Service:
    """Stands for a client on an event loop in a thread: answers when it is told to."""

    def __init__(self) -> None:
        self.loop = new_event_loop()
        self.out: dict[bytes, asyncio.Future[Reply]] = {}
        self.starts: Counter[bytes] = Counter()
        self.most = 0
        self.fail_with: Exception | None = None
        self._thread = threading.Thread(target=self.loop.run_forever)
        self._thread.start()

    def start(self, body: bytes, **_: Any) -> asyncio.Future[Reply]:
        if self.fail_with is not None:
            raise self.fail_with
        future: asyncio.Future[Reply] = self.loop.create_future()
        self.out[body] = future
        self.starts[body] += 1
        self.most = max(self.most, sum(not one.done() for one in self.out.values()))
        return future

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
        future = self.out[body]
        if error is None:
            self.do(lambda: future.set_result(Reply([b"re:" + body])))
        else:
            self.do(lambda: future.set_exception(error))

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(10)
        self.loop.close()


@pytest.fixture
def far_end() -> Iterator[Service]:
    service = Service()
    yield service
    service.close()


def pump(service: Service, limit: int = 2, standing: Standing | None = None, **more: Any) -> Pump:
    client: Any = service
    return Pump(service.loop, client, plan(window=limit, **more), standing or Standing())


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
    empty.done.result(0)


def down() -> NoService:
    return NoService("nobody", may_have_executed=False)


def statuses(rows: Window) -> list[str | None]:
    return [one and one.status for one in rows.outcomes]


def test_rows_are_refused_once_all_that_were_out_ended_unheard(far_end: Service) -> None:
    rows = window(b"a", b"b", b"c", b"d")
    pump(far_end, limit=2).offer(rows)
    far_end.answer(b"a", down())
    far_end.answer(b"b", down())
    rows.done.result(10)
    assert list(far_end.out) == [b"a", b"b"], "no row takes the place of one that ended so"
    assert statuses(rows) == ["NoService"] * 4
    assert rows.outcomes[3] == Outcome(
        None, "NoService", 0, 0.0, False,
        "not sent: no answer came to the 2 requests before it; the last one said: nobody",
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
    standing = Standing()
    first, second = window(b"a", b"b", b"c"), window(b"d", b"e")
    pump(far_end, standing=standing).offer(first)
    far_end.answer(b"a", down())
    far_end.answer(b"b", down())
    first.done.result(10)
    pump(far_end, standing=standing).offer(second)
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
    standing = Standing(Bucket(20.0, clock.now()))
    begin = monotonic()
    for body in (b"a", b"b", b"c", b"d", b"e"):
        rows = window(body)
        pump(far_end, standing=standing).offer(rows)
        far_end.answer(body)
        rows.done.result(10)
    assert monotonic() - begin >= 0.19, "five requests at twenty per second"


def test_standings_are_those_of_a_job_and_a_stage() -> None:
    standings = Standings()
    first = standings.of(Job(JOB, 1), None, 0.0)
    assert standings.of(Job(JOB, 1), None, 0.0) is first
    assert standings.of(Job(JOB, 2), None, 0.0) is not first
    assert standings.of(Job(UUID(int=8), 1), None, 0.0) is not first
    for stage in range(1000):
        standings.of(Job(JOB, stage), None, 0.0)
        standings.of(Job(JOB, None), None, 0.0)
    assert len(standings) == 64


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
    eventually(lambda: all(one.cancelled() for one in far_end.out.values()), "both are cancelled")
    assert not rows.done.done()
    assert len(far_end.out) == 2


def test_a_defect_reaches_the_task(far_end: Service) -> None:
    far_end.fail_with = ZeroDivisionError("a defect")
    rows = window(b"a")
    pump(far_end).offer(rows)
    with pytest.raises(ZeroDivisionError, match="a defect"):
        rows.done.result(10)


# --- the clients of a process ---------------------------------------------------------------------
def test_clients_are_shared_and_closed_when_idle(recorded: Recorded) -> None:
    clients = Clients(idle_s=0.05)
    connection = Connection(recorded.url())
    with clients.use(connection) as first, clients.use(connection) as second:
        assert first is second
        with clients.use(Connection(recorded.url(), slots=7)) as third:
            assert third is not first
        eventually(lambda: len(clients) == 1, "the unused one is closed")
    eventually(lambda: len(clients) == 0, "both are closed")
    with clients.use(connection) as again:
        assert again is not first
        reply = asyncio.run_coroutine_threadsafe(
            again.client.call(b"x", idempotency_key=bytes(16)), again.loop
        )
        assert reply.result(10).body == b"x"


def test_a_task_that_is_left_early_cancels_its_requests(recorded: Recorded) -> None:
    def endless() -> Iterator[pa.RecordBatch]:
        row = 0
        while True:
            yield pa.record_batch({"key": [row], "body": [b"%d" % row]})
            row += 1

    asked = Plan(Connection(recorded.url()), JOB, body=1, key=0, kept=2, window=4)
    begin = monotonic()
    rows = call_batches(endless(), asked)
    assert next(rows).to_pylist()[0]["reply"] == b"0"
    rows.close()
    assert monotonic() - begin < 10
    assert len(recorded.bodies) <= 8


TIMEOUT_S = 1.0


def tasks_of(url: str, tasks: int, rows: int, **more: Any) -> list[dict[str, Any]]:
    """Have the tasks of a job run one after the other, as in one Python worker of Spark's."""
    asked = plan(connection=Connection(url), timeout_s=TIMEOUT_S, window=64, **more)
    answers = []
    for number in range(tasks):
        keys = list(range(number * rows, (number + 1) * rows))
        batch = pa.record_batch({"key": keys, "body": [b"%d" % key for key in keys]})
        for part in call_batches([batch], asked, Task(stage=7, partition=number)):
            answers += part.to_pylist()
    return answers


@pytest.mark.parametrize("broker_is", ["there", "away"])
def test_a_service_that_is_down_costs_a_job_one_timeout(
    make_broker: MakeBroker, broker_is: str
) -> None:
    """The broker's grace is longer than the timeout: it says EXPIRED, as the deadline passes."""
    url = make_broker().url if broker_is == "there" else "mdp://127.0.0.1:1"
    begin = monotonic()
    rows = tasks_of(f"{url}/absent", tasks=20, rows=200)
    took_s = monotonic() - begin
    assert len(rows) == 4000
    assert {row["status"] for row in rows} == {"CallTimeout"}
    assert not any(row["may_have_executed"] for row in rows), "nobody can have been served"
    assert sum(row["attempts"] > 0 or row["elapsed_ms"] > 0 for row in rows) == 64
    assert TIMEOUT_S <= took_s < 2 * TIMEOUT_S, "1.1 timeouts, and the rows themselves"


def test_without_giving_up_a_service_that_is_down_is_asked_by_every_row(
    make_broker: MakeBroker,
) -> None:
    rows = tasks_of(f"{make_broker().url}/absent", tasks=1, rows=100, give_up=False)
    assert {(row["status"], row["attempts"]) for row in rows} == {("CallTimeout", 1)}


def test_a_handler_that_hangs_costs_its_own_row_alone(
    make_broker: MakeBroker, workers: list[Any]
) -> None:
    broker = make_broker()

    @requite.service("moody")
    async def moody(request: requite.Request) -> bytes:
        if request.body == b"0":
            await asyncio.Event().wait()
        return request.body

    workers.append(Live(requite.Worker(broker.url, moody)))
    broker.await_workers("moody", 1)
    rows = tasks_of(f"{broker.url}/moody", tasks=2, rows=1)
    told = [(row["status"], row["may_have_executed"]) for row in rows]
    assert told == [("CallTimeout", True), ("OK", True)]


def test_all_tasks_of_a_process_use_one_connection(recorded: Recorded) -> None:
    asked = Plan(Connection(recorded.url()), JOB, body=1, key=0, kept=2)
    before = recorded.broker.stats()["clients"]
    for _ in range(3):
        batch = pa.record_batch({"key": [1, 2], "body": [b"a", b"b"]})
        assert [row["status"] for row in next(call_batches([batch], asked)).to_pylist()] == [
            "OK"
        ] * 2
    assert recorded.broker.stats()["clients"] == before + 1
