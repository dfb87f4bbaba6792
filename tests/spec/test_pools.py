"""Requirements of "Scalable async RPC" for a pool, shown with a complete pool in the simulator."""

from __future__ import annotations

from typing import Any

import pytest
from tests.spec.requirement import requirement
from tests.support.amqp_responder import ResponderBench, worker

from requite.engine import Finished
from requite.pool.config import read_config
from requite.pool.drivers.choice import KINDS
from requite.pool.manager.environment import environment_of
from requite.protocols.amqp.reports import ACTIVITY
from requite.protocols.amqp.topology import Binding, Exchange, Pool
from requite.request import Status
from requite.sim import Options, draw, run
from requite.sim.kernel import virtual
from requite.sim.kernel.faults import FaultKind
from requite.sim.pool.callers import publish_plainly
from requite.sim.pool.knobs import Task
from requite.sim.pool.ledger import Request
from requite.sim.pool.scenarios import FAULTS
from requite.sim.pool.simulation import PoolSimulation

CORE = Pool("core")


class CalmPool(PoolSimulation):
    """A simulated pool without random faults: only the test causes some."""

    def __init__(self, **knobs: Any) -> None:
        options = Options(knobs={"calls": 0, "managers": 1, **knobs})
        super().__init__(draw(1, "pool-calm", options), options)
        with virtual.quiet(), virtual.world(self.world):
            self.begin()
            self.world.run(2.0)

    def ask(self, key: str, task: Task = Task.SERVE, **how: Any) -> Any:
        """Send a request; return its record."""
        return self.callers[0].call(next(self.numbers), key, task, **how)

    def publish(self, key: str) -> Request:
        """Publish a request as another AMQP client would, with any key; return its record."""
        number = next(self.numbers)
        request = Request(number, key, Task.SERVE, "other", False, None, self.world.now)
        self.ledger.requests[number] = request
        publish_plainly(self.stage, request, "replies-of-other")
        return request

    def advance(self, seconds: float) -> None:
        """Advance the clock, and check that no invariant was violated."""
        with virtual.quiet(), virtual.world(self.world):
            self.world.run(self.world.now + seconds)
        assert not self.history.violations

    @property
    def waiting(self) -> int:
        """The number of orphaned requests in the queue for managers."""
        return len(self.store.queues[CORE.orphan_queue].messages)


# --- names and routes -----------------------------------------------------------------------------
@requirement("pool:names")
def test_names_of_exchanges_and_queues() -> None:
    assert CORE.exchanges() == [
        Exchange("core-orphan-xchg", "fanout", {}),
        Exchange("core-dl-xchg", "fanout", {}),
        Exchange("core-activity-xchg", "fanout", {}),
        Exchange("core-control-xchg", "fanout", {}),
        Exchange("core-drain-xchg", "fanout", {}),
        Exchange("core-req-xchg", "direct", {"alternate-exchange": "core-orphan-xchg"}),
    ]
    assert {queue.name for queue in CORE.queues()} == {
        "core-orphan",
        "core-dl",
        "core-activity",
        "core-poison",
    }


@requirement("pool:request:routing")
def test_requests_are_routed_by_their_key() -> None:
    assert CORE.request_binding("42") == Binding("core-req-xchg", "core-req-42", "42")


@requirement("pool:startup:declares")
def test_a_manager_declares_its_pool() -> None:
    pool = CalmPool()
    assert all(exchange.name in pool.store.exchanges for exchange in CORE.exchanges())
    assert {queue.name for queue in CORE.queues()} <= pool.store.queues.keys()
    for binding in CORE.bindings():
        bound = pool.store.exchanges.bound(binding.exchange, binding.routing_key)
        assert binding.queue in bound


@requirement("pool:drivers")
def test_there_is_a_driver_for_each_platform() -> None:
    assert {"subprocess", "noop", "docker", "kubernetes", "systemd"} <= {*KINDS}


# --- workers --------------------------------------------------------------------------------------
@requirement("pool:worker:environment")
def test_the_environment_of_a_worker() -> None:
    told = environment_of(read_config('[pool]\nname = "core"'))("a/b", "w1")
    assert told["WORKER_ID"] == "w1"
    assert told["WORKER_KEY"] == "a/b"
    assert told["WORKER_POOL"] == "core"
    assert told["WORKER_REQUESTS_QUEUE"] == "core-req-a%2Fb"
    assert told["WORKER_ACTIVITY_EXCHANGE"] == "core-activity-xchg"


def reports(side: ResponderBench) -> list[tuple[str, str, str]]:
    """Return exchange, routing key and event of each report since the last call."""
    published = side.published(ACTIVITY)
    return [(exchange, key, of.headers["x-event"]) for exchange, key, of, _ in published]


@requirement("pool:worker:reports")
def test_workers_report_their_activity_with_their_key() -> None:
    side = worker()
    side.connect()
    assert reports(side) == [("core-activity-xchg", "a/b", "started")]
    side.consume()
    side.request()
    assert reports(side) == [("core-activity-xchg", "a/b", "request-received")]


@requirement("pool:failure:parse")
def test_a_request_that_cannot_be_parsed_gets_an_error_reply() -> None:
    side = worker()
    side.consume()
    job, _ = side.request(b"\xff not what it expects")
    side.feed(Finished(job, [b"cannot be parsed"], Status.FAILED))
    headers, body = side.answer()
    assert (headers["x-status"], body) == ("error", b"cannot be parsed")


# --- a call from request to reply -----------------------------------------------------------------
@requirement("pool:request:at-least-once", "pool:worker:requeue")
@pytest.mark.parametrize("task", [Task.SERVE, Task.REQUEUE])
def test_a_request_of_a_new_key_is_served(task: Task) -> None:
    pool = CalmPool()
    request = pool.ask("42", task)
    pool.advance(20.0)
    assert request.answers == ["ok"]
    assert request.runs == (2 if task is Task.REQUEUE else 1)


@requirement("pool:fast-path", "pool:failure:no-manager")
def test_without_a_manager_existing_groups_serve_and_new_keys_wait() -> None:
    pool = CalmPool(unbind_delay_s=60.0)
    pool.ask("there")
    pool.advance(10.0)
    pool.managers[0].kill()
    served, waits = pool.ask("there"), pool.ask("new")
    pool.advance(10.0)
    assert served.answers == ["ok"]
    assert not waits.answers
    assert pool.waiting == 1
    pool.managers[0].start()
    pool.advance(20.0)
    assert waits.answers == ["ok"]


@requirement("pool:failure:managers")
def test_a_standby_manager_takes_over_from_the_active_one() -> None:
    pool = CalmPool(managers=2)
    pool.advance(3.0)
    assert sorted(manager.is_active for manager in pool.managers) == [False, True]
    active = next(manager for manager in pool.managers if manager.is_active)
    active.kill()
    request = pool.ask("42")
    pool.advance(20.0)
    assert request.answers == ["ok"]
    assert next(m for m in pool.managers if m.alive and m.is_active) is not active


# --- failures -------------------------------------------------------------------------------------
@requirement("pool:failure:crash")
@pytest.mark.parametrize("task", [Task.POISON, Task.STALL])
def test_a_request_that_kills_or_stalls_its_workers_is_dead_lettered(task: Task) -> None:
    pool = CalmPool(delivery_limit=2, message_ttl_s=60.0, ack_timeout_s=3.0)
    request = pool.ask("42", task)
    pool.advance(60.0)
    assert request.answers == ["delivery_limit"]
    assert request.runs == 3
    kept = pool.store.queues[CORE.poison_queue].messages
    assert [message.number for message in kept] == [request.number]
    after = pool.ask("42")
    pool.advance(20.0)
    assert after.answers == ["ok"]


@requirement("pool:failure:no-worker")
def test_requests_expire_where_workers_do_not_start() -> None:
    pool = CalmPool(message_ttl_s=15.0)
    pool.driver.fails = 1
    request = pool.ask("42")
    pool.advance(20.0)
    assert request.answers == ["expired"]


@requirement("pool:failure:key")
@pytest.mark.parametrize(
    ("key", "answer"),
    [
        ("", "ok"),
        ("%/\x01\n", "ok"),
        ("é" * 30, "ok"),
        ("/" * 100, "rejected"),
        ("a\0", "rejected"),
    ],
)
def test_every_key_gets_an_answer(key: str, answer: str) -> None:
    pool = CalmPool()
    request = pool.publish(key)
    pool.advance(20.0)
    assert request.answers == [answer]


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_alone_loses_nothing(fault: FaultKind) -> None:
    knobs = {"faults": (fault,), "faults_per_s": 0.5, "calls": 25, "faulty_s": 15.0}
    result = run(3, "pool-calm", Options(knobs=knobs))
    assert not result.violations
