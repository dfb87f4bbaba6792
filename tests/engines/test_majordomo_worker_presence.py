"""The worker engine: heartbeats, leases and progress."""

from __future__ import annotations

import pytest
from tests.spec.requirement import requirement
from tests.support.worker import WorkerBench, started

from requite.engine import Cause
from requite.protocols.majordomo.wire import (
    Disconnect,
    Progress,
    WorkerHeartbeat,
    WorkerPartial,
)

VERSIONS = ["0.1", "0.2", "0.3"]
OLD = ["0.1", "0.2"]


# --- heartbeats -----------------------------------------------------------------------------------
@requirement(
    "mdp01:heartbeat:regular",
    "mdp02:heartbeat:regular",
    "mdp01:heartbeat:any-time",
    "mdp02:heartbeat:any-time",
)
@pytest.mark.parametrize("version", VERSIONS)
def test_heartbeats_are_sent_while_idle_and_while_a_handler_runs(version):
    bench = started(version)
    bench.advance_alive(5.0)
    bench.request()
    bench.advance_alive(5.0)
    assert len(bench.said(WorkerHeartbeat)) == 10


@requirement("mdp01:heartbeat:sparing", "mdp02:heartbeat:sparing")
@pytest.mark.parametrize("version", VERSIONS)
def test_other_commands_replace_heartbeats(version):
    bench = started(version)
    for _ in range(20):
        bench.finish(bench.request())
        bench.advance(0.6)
    assert not bench.said(WorkerHeartbeat)


@requirement("mdp01:heartbeat:gone", "mdp02:heartbeat:gone", "mdp02:worker:restart")
@pytest.mark.parametrize("version", VERSIONS)
def test_a_worker_reconnects_after_its_broker_times_out(version):
    bench = started(version)
    job = bench.request()
    bench.advance(2.99)
    assert bench.link == "link-1"
    bench.advance(0.01)
    assert "nothing came from the broker for 3.00 s" in bench.disconnected["link-1"]
    assert bench.causes["link-1"] is Cause.SILENT
    assert job in bench.abandoned
    assert bench.dialling == 1


@pytest.mark.parametrize("version", VERSIONS)
def test_any_command_of_the_broker_counts_as_an_answer(version):
    bench = WorkerBench(version)
    bench.advance(0)
    assert not bench.worker.is_answered
    bench.join()
    assert not bench.worker.is_answered
    bench.heartbeat()
    assert bench.worker.is_answered
    bench.lose()
    assert not bench.worker.is_answered
    bench.join()
    assert not bench.worker.is_answered
    bench.request()
    assert bench.worker.is_answered


@pytest.mark.parametrize("version", VERSIONS)
def test_a_broker_that_never_answers_times_out_with_that_reason(version):
    bench = WorkerBench(version)
    bench.advance(0)
    bench.join()
    bench.advance(3.0)
    assert "not even a reply to READY" in bench.disconnected["link-1"]


@requirement("mdp01:heartbeat:any-command", "mdp02:heartbeat:any-command")
@pytest.mark.parametrize("version", VERSIONS)
def test_any_command_counts_as_a_heartbeat_of_the_broker(version):
    bench = started(version)
    for _ in range(5):
        bench.finish(bench.request())
        bench.advance(2.5)
    assert bench.link == "link-1"


@requirement("mdp03:worker-heartbeat")
def test_the_longer_interval_applies_to_both():
    bench = WorkerBench(interval_s=0.5)
    bench.advance(0)
    bench.join()
    assert bench.said()[0].interval_ms == 500
    bench.heartbeat(interval_ms=2000)
    bench.advance(5.9)
    assert len(bench.said(WorkerHeartbeat)) == 2
    assert bench.link == "link-1"
    bench.advance(0.1)
    assert bench.link is None


@requirement("mdp03:worker-heartbeat")
def test_a_shorter_interval_of_the_broker_is_ignored():
    bench = started()
    bench.heartbeat(interval_ms=10)
    bench.advance(2.9)
    assert len(bench.said(WorkerHeartbeat)) == 2


@pytest.mark.parametrize("version", VERSIONS)
def test_a_pause_of_the_worker_does_not_count_as_silence_of_the_broker(version):
    bench = started(version)
    bench.advance(0.5)
    bench.freeze(60.0)
    assert bench.link == "link-1"
    assert len(bench.said(WorkerHeartbeat)) == 1


# --- leases ---------------------------------------------------------------------------------------
@requirement("mdp03:worker-lease")
def test_progress_is_sent_to_the_broker_at_a_limited_rate():
    bench = started(lease_s=8.0)
    job = bench.request()
    for _ in range(100):
        bench.progress(job)
        bench.advance_alive(0.1, every=0.1)
    progress = bench.said(Progress)
    assert progress[0] == Progress(job.dispatch_id, 0)
    assert len(progress) == 10


def test_every_lease_extension_is_sent():
    bench = started(lease_s=8.0)
    job = bench.request()
    bench.progress(job, 20.0)
    bench.progress(job, 30.0)
    assert [p.extend_ms for p in bench.said(Progress)] == [20_000, 30_000]


def test_without_a_lease_no_progress_is_sent():
    bench = started()
    bench.progress(bench.request())
    assert not bench.said(Progress)


@pytest.mark.parametrize("version", OLD)
def test_an_older_worker_disconnects_when_a_handler_outlives_its_lease(version):
    bench = started(version, lease_s=2.0)
    job = bench.request()
    bench.advance_alive(1.9)
    assert bench.link == "link-1"
    bench.advance_alive(1.5)
    assert bench.said(link="link-1")[-1] == Disconnect()
    bench.finish(job)
    assert not bench.finals()


@pytest.mark.parametrize("version", OLD)
@pytest.mark.parametrize("way", ["progress", "extension", "partial"])
def test_an_older_worker_stays_connected_while_its_handler_shows_progress(version, way):
    bench = started(version, lease_s=2.0)
    job = bench.request()
    bench.advance_alive(1.5)
    if way == "partial":
        bench.produce(job, b"part")
    else:
        bench.progress(job, 4.0 if way == "extension" else 0.0)
    bench.advance_alive(1.5)
    assert bench.link == "link-1"
    assert len(bench.said(WorkerHeartbeat)) + len(bench.said(WorkerPartial)) == 3
