"""Tasks of bulk calls, without Spark: clients, services that are down, cancellation, progress."""

from __future__ import annotations

import asyncio
import collections
import io
import os
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import Any

import pyarrow as pa
import pytest
from tests.spark.bulk.planned import JOB, plan
from tests.spark.bulk.services import Recorded
from tests.support.live import InBackground, Live, MakeBroker, eventually

import requite
from requite.errors import ConfigurationError
from requite.spark.bulk.client import Clients
from requite.spark.bulk.consumer import TaskEnded, this_consumer
from requite.spark.bulk.plan import Connection, Plan
from requite.spark.bulk.progress import Progress
from requite.spark.bulk.task import Task, call_batches


@pytest.fixture(autouse=True, scope="module")
def _clients() -> Iterator[None]:
    """Use separate clients for these tests, and wait until they are closed.

    A client left over would dial its stopped broker again and again. Its back-off draws from the
    random generator that Hypothesis watches.
    """
    clients = Clients(idle_s=0.5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("requite.spark.bulk.client._clients", clients)
        yield
    eventually(lambda: len(clients) == 0, "all are closed")


def answered(parts: Iterator[pa.RecordBatch]) -> list[dict[str, Any]]:
    """Return the next rows of a task; skip the empty batches that a waiting task yields."""
    rows: list[dict[str, Any]] = next(part for part in parts if part.num_rows).to_pylist()
    return rows


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


def test_a_task_that_is_closed_early_cancels_its_requests(recorded: Recorded) -> None:
    def endless() -> Iterator[pa.RecordBatch]:
        row = 0
        while True:
            yield pa.record_batch({"key": [row], "body": [b"%d" % row]})
            row += 1

    job_plan = Plan(Connection(recorded.url()), JOB, body=1, key=0, kept=2, window=4)
    begin = monotonic()
    rows = call_batches(endless(), job_plan)
    assert answered(rows)[0]["reply"] == b"0"
    rows.close()
    assert monotonic() - begin < 10
    assert len(recorded.bodies) <= 8


TIMEOUT_S = 1.0


def tasks_of(url: str, tasks: int, rows: int, **more: Any) -> list[dict[str, Any]]:
    """Run the tasks of a job one after the other, as one Python worker of Spark does."""
    job_plan = plan(connection=Connection(url), timeout_s=TIMEOUT_S, window=64, **more)
    answers = []
    for number in range(tasks):
        keys = list(range(number * rows, (number + 1) * rows))
        batch = pa.record_batch({"key": keys, "body": [b"%d" % key for key in keys]})
        for part in call_batches([batch], job_plan, Task(stage=7, partition=number)):
            answers += part.to_pylist()
    return answers


@pytest.mark.parametrize("broker_is", ["there", "away"])
def test_a_job_waits_one_timeout_for_a_service_that_is_down(
    make_broker: MakeBroker, broker_is: str
) -> None:
    """The broker's grace is longer than the timeout, so it replies EXPIRED at the deadline."""
    url = make_broker().url if broker_is == "there" else "mdp://127.0.0.1:1"
    begin = monotonic()
    rows = tasks_of(f"{url}/absent", tasks=20, rows=200)
    took_s = monotonic() - begin
    assert len(rows) == 4000
    assert {row["status"] for row in rows} == {"CallTimeout"}
    assert not any(row["may_have_executed"] for row in rows), "no request can have run"
    assert sum(row["attempts"] > 0 or row["elapsed_ms"] > 0 for row in rows) == 64
    assert TIMEOUT_S <= took_s < 5 * TIMEOUT_S, "not one for each of 20 tasks, nor two"


def test_without_give_up_every_row_is_sent_to_a_service_that_is_down(
    make_broker: MakeBroker,
) -> None:
    rows = tasks_of(f"{make_broker().url}/absent", tasks=1, rows=100, give_up=False)
    assert {(row["status"], row["attempts"]) for row in rows} == {("CallTimeout", 1)}


def test_a_hanging_handler_fails_only_its_own_row(
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
    found = [(row["status"], row["may_have_executed"]) for row in rows]
    assert found == [("CallTimeout", True), ("OK", True)]


@pytest.mark.parametrize("takes_s", [0.02, 0.3])
def test_a_cancelled_task_stops_sending_within_half_a_second(
    make_broker: MakeBroker, workers: list[Any], takes_s: float
) -> None:
    """Imitates Spark: the JVM closes the socket at the first output after the cancellation, and
    the Python worker writes batches to it through a buffer."""
    broker, begun_at = make_broker(), [0.0]

    @requite.service("nap")
    async def nap(request: requite.Request) -> bytes:
        begun_at.append(monotonic())
        await asyncio.sleep(takes_s)
        return request.body

    workers.append(Live(requite.Worker(broker.url, nap, capacity=8)))
    broker.await_workers("nap", 1)
    keys = list(range(10_000))
    batch = pa.record_batch({"key": keys, "body": [b"%d" % key for key in keys]})
    job_plan = plan(connection=Connection(f"{broker.url}/nap"), timeout_s=30.0, window=8)

    def cancel() -> float:
        """Cancel a running task; return the seconds until the start of its last request."""
        before = len(begun_at)
        with cancelled_task(batch, job_plan) as task:
            eventually(lambda: len(begun_at) > before + 40, "it is under way")
            cancelled_at = task()
        eventually(lambda: monotonic() > begun_at[-1] + 1, "it is over")
        return begun_at[-1] - cancelled_at

    # A busy machine may delay threads, so one of three suffices. Uncancelled tasks run for longer.
    assert any(cancel() < 0.5 for _ in range(3))


@contextmanager
def cancelled_task(batch: pa.RecordBatch, job_plan: Plan) -> Iterator[Callable[[], float]]:
    """Run a task; yield a function that cancels it and returns the time."""
    jvm, here = socket.socketpair()
    cancelled = threading.Event()

    def write() -> None:
        stream = io.BufferedWriter(socket.SocketIO(here, "w"), 1 << 16)
        rows = call_batches([batch], job_plan)
        writer = pa.RecordBatchStreamWriter(stream, next(rows).schema)
        with pytest.raises(TaskEnded, match="are cancelled"):
            collections.deque(map(writer.write_batch, rows), maxlen=0)
        with suppress(BrokenPipeError):  # no reader takes the buffered data
            stream.close()

    def read() -> None:
        while jvm.recv(1 << 16) and not cancelled.is_set():
            pass
        jvm.close()

    def cancel() -> float:
        cancelled.set()
        return monotonic()

    with here, InBackground(write), InBackground(read):
        yield cancel


def test_without_a_socket_in_the_call_stack_there_is_no_consumer() -> None:
    with open(os.devnull, "wb") as out:
        assert not out.closed
        this_consumer().beat(monotonic())


# --- progress -------------------------------------------------------------------------------------
def test_tasks_report_progress_to_the_driver(recorded: Recorded, tmp_path: Path) -> None:
    out = io.StringIO()
    with Progress(str(tmp_path / "progress"), every=60, out=out) as progress:
        assert progress.line() == "no task has reported yet"
        job_plan = plan(connection=Connection(recorded.url()), report_to=progress.folder)
        batch = pa.record_batch({"key": [1, 2, None], "body": [b"a", b"b", b"c"]})
        running = call_batches([batch] * 2, job_plan, Task(stage=1, partition=0))
        assert len(answered(running)) == 3
        list(call_batches([batch], job_plan, Task(stage=1, partition=1)))
        assert progress.count() == ({"OK": 4, "BadRow": 2}, 1, 1)
        list(running)
        list(call_batches([batch], job_plan, Task(stage=1, partition=1, attempt=1)))
        assert progress.count() == ({"OK": 6, "BadRow": 3}, 0, 2), "each task counts once"
        assert re.fullmatch(
            r"0 tasks at work, 2 ended: 9 rows, [\d,]+ rows/s \(OK 6, BadRow 3\)", progress.line()
        )
    assert out.getvalue().endswith("rows/s (OK 6, BadRow 3)\n"), "the final line is written"
    assert not list((tmp_path / "progress").iterdir())


def test_rows_are_sent_even_if_progress_cannot_be_written(
    recorded: Recorded, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("no folder")
    job_plan = plan(connection=Connection(recorded.url()), report_to=str(tmp_path / "file"))
    batch = pa.record_batch({"key": [1], "body": [b"a"]})
    rows = [row for part in call_batches([batch] * 3, job_plan) for row in part.to_pylist()]
    assert [row["status"] for row in rows] == ["OK"] * 3
    assert caplog.text.count("cannot report progress to") == 1


def test_progress_is_shown_while_the_job_runs() -> None:
    out = io.StringIO()
    with Progress(every=0.01, out=out) as progress:
        eventually(lambda: out.getvalue().count("\n") > 2, "lines are written")
    assert set(out.getvalue().splitlines()) == {"no task has reported yet"}
    assert not Path(progress.folder).exists()


def test_progress_on_a_cluster_needs_a_shared_folder() -> None:
    with Progress(out=io.StringIO()) as progress:
        progress.check("local[2]")
        with pytest.raises(ConfigurationError, match="pass a folder that all machines share"):
            progress.check("spark://master:7077")
    with pytest.raises(ConfigurationError, match="positive number of seconds"):
        Progress(every=0)


def test_all_tasks_of_a_process_use_one_connection(recorded: Recorded) -> None:
    job_plan = Plan(Connection(recorded.url()), JOB, body=1, key=0, kept=2)
    before = recorded.broker.stats()["clients"]
    for _ in range(3):
        batch = pa.record_batch({"key": [1, 2], "body": [b"a", b"b"]})
        assert [row["status"] for row in answered(call_batches([batch], job_plan))] == ["OK"] * 2
    assert recorded.broker.stats()["clients"] == before + 1
