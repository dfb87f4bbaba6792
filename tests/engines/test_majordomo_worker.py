"""The worker engine: registration, requests, cancellation, draining."""

from __future__ import annotations

import pytest
from tests.spec.requirement import requirement
from tests.support.worker import INSTANCE, WorkerBench, started

from requite.engine import Finished, PeerBlocked, PeerJoined, PeerWritable, Submit
from requite.errors import ConfigurationError, LocalViolation
from requite.protocols.majordomo.dialects import by_version
from requite.protocols.majordomo.jobs import WorkerPolicy
from requite.protocols.majordomo.wire import (
    Disconnect,
    DrainNotice,
    Ready,
    WorkerFinal,
    WorkerHeartbeat,
    WorkerPartial,
)
from requite.protocols.majordomo.worker import MajordomoWorker
from requite.request import Status

VERSIONS = ["0.1", "0.2", "0.3"]
OLD = ["0.1", "0.2"]


# --- registration ---------------------------------------------------------------------------------
@requirement("mdp03:worker-ready")
def test_the_first_wake_dials_and_ready_is_sent_on_the_connection():
    bench = WorkerBench(capacity=16, lease_s=30.0)
    assert bench.worker.deadline() == 0.0
    bench.advance(0)
    assert bench.dialling == 1
    bench.join()
    assert bench.said() == [Ready(b"echo", 16, 1000, 30_000, INSTANCE)]


@requirement("mdp01:worker:one-ready", "mdp02:worker:one-ready", "mdp02:worker:assume-registered")
@pytest.mark.parametrize("version", OLD)
def test_an_older_worker_sends_ready_once_and_needs_no_confirmation(version):
    bench = WorkerBench(version)
    bench.advance(0)
    bench.join()
    job = bench.request(b"hi")
    bench.finish(job, b"ho")
    bench.advance_alive(10.0)
    assert bench.said(Ready) == [Ready(b"echo")]
    assert len(bench.finals()) == 1


@requirement("mdp01:worker:one-broker", "mdp02:worker:one-broker")
@pytest.mark.parametrize("version", VERSIONS)
def test_a_worker_keeps_one_connection(version):
    bench = started(version)
    bench.feed(PeerJoined("uninvited"))
    assert "uninvited" in bench.disconnected
    assert bench.link == "link-1"
    assert bench.dialling == 0


@requirement("mmi:register", "mdp03:service-name")
@pytest.mark.parametrize("service", ["", "x" * 256, "a\nb", "mmi.service", "mmi.mine"])
def test_an_invalid_service_name_is_refused(service):
    with pytest.raises(ConfigurationError):
        MajordomoWorker(by_version("0.3"), service, rng=lambda: 0.5)


@requirement("mdp01:worker:one-at-a-time", "mdp02:worker:one-at-a-time")
@pytest.mark.parametrize("version", OLD)
def test_an_older_worker_accepts_one_request_at_a_time(version):
    with pytest.raises(ConfigurationError, match="one request at a time"):
        WorkerBench(version, capacity=2)
    bench = started(version)
    bench.request()
    bench.say(bench.encode_request())
    assert len(bench.requests) == 1
    assert isinstance(bench.said(link="link-1")[-1], Disconnect)


@pytest.mark.parametrize("bad", [{"capacity": 0}, {"capacity": 65_536}, {"lease_s": -1.0}])
def test_an_invalid_policy_is_refused(bad):
    with pytest.raises(ConfigurationError):
        WorkerPolicy(**bad)


# --- requests and replies -------------------------------------------------------------------------
def test_a_request_is_delivered_and_answered():
    bench = started()
    job = bench.request(b"hi", timeout_ms=2500, attempt=2, key=b"k")
    request = bench.requests[job]
    assert (request.service, request.body, request.attempt) == ("echo", b"hi", 2)
    assert (request.remaining_s, request.idempotency_key) == (2.5, b"k")
    bench.finish(job, b"ho")
    assert bench.said(WorkerFinal) == [WorkerFinal(b"", [b"ho"], job.dispatch_id, 0)]
    assert bench.worker.snapshot().running == 0


@pytest.mark.parametrize("version", OLD)
def test_an_older_reply_carries_the_clients_address(version):
    bench = started(version)
    bench.finish(bench.request(b"hi"), b"ho")
    assert bench.said(WorkerFinal) == [WorkerFinal(b"client", [b"ho"])]


@requirement("mdp03:worker-dispatch", "mdp03:worker-capacity")
def test_requests_up_to_the_capacity_are_answered_in_any_order():
    bench = started(capacity=3)
    jobs = [bench.request(b"%d" % n) for n in range(3)]
    for n in (2, 0, 1):
        bench.finish(jobs[n], b"re %d" % n)
    assert [(f.dispatch_id, f.body) for f in bench.said(WorkerFinal)] == [
        (jobs[n].dispatch_id, [b"re %d" % n]) for n in (2, 0, 1)
    ]


def test_a_request_without_a_timeout_has_none():
    bench = started()
    assert bench.requests[bench.request()].remaining_s is None


def test_a_failure_causes_a_negative_reply():
    bench = started()
    bench.finish(bench.request(), b"ValueError: no", Status.FAILED)
    assert bench.finals() == [(b"ValueError: no", Status.FAILED)]


@requirement("mdp03:status-final")
def test_a_failure_says_that_it_is_final():
    bench = started()
    job = bench.request()
    bench.feed(Finished(job, (b"no", b"final"), Status.FAILED))
    [final] = bench.said(WorkerFinal)
    assert (final.status, final.body) == (Status.FAILED, [b"no", b"final"])


@requirement("mdp03:status-worker")
@pytest.mark.parametrize("status", set(Status) - {Status.OK, Status.FAILED, Status.CANCELLED})
def test_a_worker_cannot_end_a_request_with_a_status_of_the_brokers(status):
    bench = started()
    job = bench.request()
    with pytest.raises(LocalViolation):
        bench.finish(job, b"", status)
    bench.finish(job)
    assert len(bench.finals()) == 1


@pytest.mark.parametrize("version", OLD)
def test_an_older_worker_reconnects_instead_of_sending_an_error_as_a_reply(version):
    bench = started(version)
    bench.finish(bench.request(), b"ValueError: no", Status.FAILED)
    assert bench.finals() == []
    assert isinstance(bench.said(link="link-1")[-1], Disconnect)
    assert "ValueError: no" in bench.warnings[0].text
    bench.join()
    assert bench.said() == [Ready(b"echo")]


def test_an_empty_reply_is_one_empty_frame():
    bench = started()
    job = bench.request()
    bench.feed(Finished(job, []))
    assert bench.said(WorkerFinal)[0].body == [b""]


@requirement("mdp02:worker:one-final")
@pytest.mark.parametrize("version", ["0.2", "0.3"])
def test_partials_precede_one_final(version):
    bench = started(version)
    job = bench.request()
    for part in (b"a", b"b"):
        bench.produce(job, part)
    bench.finish(job, b"end")
    bench.produce(job, b"late")
    bench.finish(job, b"late")
    assert [c.body for c in bench.said(WorkerPartial)] == [[b"a"], [b"b"]]
    assert bench.finals() == [(b"end", 0)]


def test_partials_are_joined_with_the_reply_in_0_1():
    bench = started("0.1")
    job = bench.request()
    bench.produce(job, b"a")
    bench.produce(job, b"b")
    bench.finish(job, b"end")
    assert bench.said(WorkerFinal)[0].body == [b"a", b"b", b"end"]


# --- cancel and deadline --------------------------------------------------------------------------
@requirement("mdp03:worker-cancel")
def test_a_cancelled_request_is_abandoned_and_gets_its_final():
    bench = started(capacity=1)
    job = bench.request()
    bench.cancel(job)
    bench.cancel(job)
    assert bench.abandoned[job] == "the caller cancelled the request"
    bench.produce(job, b"nobody reads this")
    assert bench.finals() == []
    bench.finish(job, b"too late")
    assert bench.finals() == [(b"the caller cancelled the request", Status.CANCELLED)]
    assert not bench.said(WorkerPartial)
    bench.request()  # the slot is free again


def test_a_cancel_that_crosses_the_final_is_ignored():
    bench = started()
    job = bench.request()
    bench.finish(job)
    bench.cancel(job)
    assert not bench.abandoned
    assert len(bench.finals()) == 1


def test_a_request_whose_deadline_passes_is_abandoned():
    bench = started(capacity=2)
    short, long = bench.request(timeout_ms=500), bench.request(timeout_ms=5000)
    bench.advance(0.5)
    assert bench.abandoned == {short: "the deadline passed"}
    bench.finish(short)
    bench.finish(long)
    assert bench.finals() == [
        (b"the deadline passed", Status.CANCELLED),
        (b"y", Status.OK),
    ]


# --- protocol violations of the broker ------------------------------------------------------------
@requirement("mdp03:worker-capacity")
def test_a_request_beyond_the_capacity_closes_the_connection():
    bench = started(capacity=1)
    job = bench.request()
    bench.say(bench.encode_request(), bench.encode_request())
    assert len(bench.requests) == 1
    assert job in bench.abandoned
    assert isinstance(bench.said(link="link-1")[-1], Disconnect)
    assert bench.dialling == 1


def test_a_cancelled_request_occupies_its_slot_until_its_final():
    bench = started(capacity=1)
    bench.cancel(bench.request())
    bench.say(bench.encode_request())
    assert "link-1" in bench.disconnected


@requirement("mdp03:worker-dispatch")
def test_a_dispatch_id_in_use_closes_the_connection():
    bench = started(capacity=2)
    message = bench.encode_request()
    bench.say(message)
    bench.say(message)
    assert "already in use" in bench.disconnected["link-1"]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_malformed_message_makes_the_worker_reconnect(version):
    bench = started(version)
    bench.say([b"what", b"is", b"this"], bench.encode_request())
    assert not bench.requests
    assert bench.warnings[0].kind == "malformed"
    bench.advance(1.0)
    bench.join()
    assert isinstance(bench.said()[0], Ready)


# --- reconnecting ---------------------------------------------------------------------------------
@requirement(
    "mdp01:worker:reconnect",
    "mdp02:worker:reconnect",
    "mdp02:worker:silent-after-disconnect",
    "mdp03:worker-reconnect",
)
@pytest.mark.parametrize("version", VERSIONS)
def test_on_disconnect_a_worker_sends_nothing_more_and_registers_again(version):
    bench = started(version)
    job = bench.request()
    said = len(bench.said())
    bench.say(bench.dialect.encode(Disconnect()), bench.encode_request())
    assert bench.link is None
    assert len(bench.said(link="link-1")) == said
    assert bench.abandoned[job] == "the broker disconnected"
    assert bench.dialling == 1
    bench.join()
    bench.finish(job, b"of the earlier conversation")
    bench.produce(job, b"and so is this")
    assert [type(c) for c in bench.said()] == [Ready]


@requirement("mdp03:worker-reconnect")
def test_results_for_a_lost_connection_are_dropped_even_if_the_dispatch_id_is_reused():
    bench = started()
    old = bench.request()
    bench.lose()
    bench.join()
    bench._dispatch_id = 0
    new = bench.request()
    assert new.dispatch_id == old.dispatch_id
    bench.finish(old, b"old")
    assert bench.finals() == []
    bench.finish(new, b"new")
    assert bench.finals() == [(b"new", 0)]


def test_a_broker_that_keeps_refusing_is_dialled_with_back_off():
    bench = WorkerBench()
    bench.advance(0)
    pauses = []
    for _ in range(5):
        bench.join()
        refused_at = bench.now
        bench.say(bench.dialect.encode(Disconnect()))
        while not bench.dialling:
            bench.advance(bench.worker.deadline() - bench.now)
        pauses.append(bench.now - refused_at)
    assert pauses == sorted(pauses)
    assert pauses[0] == 0 < pauses[1] < pauses[-1] <= 10.0


# --- draining -------------------------------------------------------------------------------------
@requirement("mdp03:worker-drain")
def test_a_draining_worker_finishes_its_requests_and_one_sent_before_its_notice():
    bench = started(capacity=2)
    first = bench.request()
    bench.drain()
    assert bench.said(DrainNotice) == [DrainNotice()]
    crossing = bench.request()
    bench.finish(first)
    bench.advance(0.3)
    assert not bench.stopped
    bench.finish(crossing)
    assert bench.stopped
    assert bench.said(link="link-1")[-1] == Disconnect()
    assert len(bench.finals()) == 2
    assert bench.link is None
    assert bench.worker.deadline() is None


def test_an_idle_draining_worker_waits_for_requests_in_flight():
    bench = started(drain_linger_s=0.25)
    bench.drain()
    bench.advance(0.2)
    assert not bench.stopped
    bench.advance(0.05)
    assert bench.stopped


@pytest.mark.parametrize("version", OLD)
def test_an_older_draining_worker_finishes_its_request_then_disconnects(version):
    bench = started(version)
    job = bench.request()
    bench.drain()
    bench.drain()
    assert not bench.stopped
    bench.finish(job)
    assert [type(c) for c in bench.said(link="link-1")[-2:]] == [WorkerFinal, Disconnect]
    assert bench.stopped


@pytest.mark.parametrize("version", VERSIONS)
def test_a_draining_worker_without_a_connection_stops_at_once(version):
    bench = WorkerBench(version)
    bench.advance(0)
    bench.drain()
    assert bench.stopped
    bench.join()
    assert "link-1" in bench.disconnected
    assert not bench.said(link="link-1")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_draining_worker_does_not_reconnect(version):
    bench = started(version)
    job = bench.request()
    bench.drain()
    bench.lose()
    assert bench.stopped
    assert job in bench.abandoned
    bench.advance(60.0)
    assert bench.dialling == 0
    bench.finish(job)
    assert bench.worker.snapshot().running == 0


def test_a_draining_worker_sends_heartbeats():
    bench = started()
    bench.request()
    bench.drain()
    bench.advance_alive(5.0)
    assert len(bench.said(WorkerHeartbeat)) >= 4


# --- misuse and notes -----------------------------------------------------------------------------
def test_an_input_of_another_role_is_refused():
    with pytest.raises(LocalViolation, match="does not handle the input"):
        started().feed(Submit("a", "echo", [b""], 1.0))


def test_back_pressure_changes_nothing():
    bench = started()
    bench.feed(PeerBlocked("link-1"))
    bench.finish(bench.request())
    bench.feed(PeerWritable("link-1"))
    assert len(bench.finals()) == 1


def test_messages_of_a_closed_connection_are_ignored():
    bench = started()
    bench.lose()
    bench.say(bench.encode_request(), link="link-1")
    assert not bench.requests


def test_notes_are_emitted_for_each_step_of_a_request():
    bench = started()
    job = bench.request()
    bench.cancel(job)
    bench.finish(job)
    assert [note.kind for note in bench.notes] == ["delivered", "abandoned", "finished"]
    assert all(note.facts["dispatch_id"] == job.dispatch_id for note in bench.notes)


def test_notes_can_be_turned_off():
    bench = started(notes=False)
    bench.cancel(bench.request())
    bench.finish(next(iter(bench.requests)))
    assert not bench.notes
