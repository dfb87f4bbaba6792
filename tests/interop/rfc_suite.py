"""Tests that peers of 7/MDP and 18/MDP share, with raw pyzmq sockets.

`test_rfc7_pyzmq.py` and `test_rfc18_pyzmq.py` run them with their own frames, and add tests of what
only their document has.
"""

from __future__ import annotations

import logging
from itertools import pairwise
from time import monotonic
from typing import Any

import pytest
import zmq
from tests.support.live import BrokerProcess, LiveBroker, MakeBroker, Observed, Process, eventually
from tests.support.zmq_peers import (
    HandClient,
    HandWorker,
    Rfc,
    Silence,
    Sockets,
    first_to_hear,
)

from requite.core.liveness import HeartbeatPolicy
from requite.protocols.majordomo.policy import BrokerPolicy

# Short for a test, but long enough that a pause of a busy machine does not look like a lost peer.
QUICK = HeartbeatPolicy(interval_s=0.15, liveness=5)
LOST_AFTER_S = QUICK.interval_s * QUICK.liveness
BRISK = BrokerPolicy(heartbeat=QUICK, legacy_busy_timeout_s=LOST_AFTER_S)


class ClientSuite:
    """Tests of clients. A subclass runs them for one `rfc` and one kind of socket."""

    rfc: Rfc
    client_kind = zmq.DEALER

    def client(self, sockets: Sockets, broker: Observed, **options: Any) -> HandClient:
        return HandClient(sockets, broker.endpoint, self.rfc, kind=self.client_kind, **options)

    def worker(self, sockets: Sockets, broker: Observed, **options: Any) -> HandWorker:
        return HandWorker(sockets, broker.endpoint, self.rfc, **options)

    # --- requests and replies -----------------------------------------------------------------
    def test_a_request_reaches_a_worker_and_its_reply_the_client(
        self, sockets: Sockets, broker: LiveBroker
    ) -> None:
        worker = self.worker(sockets, broker)
        client = self.client(sockets, broker)
        client.request(b"echo", b"hello")
        address, body = worker.take()
        assert body == [b"hello"]
        worker.final(address, b"world")
        assert client.reply() == ("final", b"echo", [b"world"])

    @pytest.mark.parametrize("identity", [b"client-7", b"\xff", b"i" * 255], ids=len)
    def test_a_client_is_known_to_workers_by_the_identity_it_chose(
        self, identity: bytes, sockets: Sockets, broker: LiveBroker
    ) -> None:
        worker = self.worker(sockets, broker, identity=b"worker-1")
        client = self.client(sockets, broker, identity=identity)
        client.request(b"echo", b"x")
        address, body = worker.take()
        assert address == identity
        worker.final(address, *body)
        assert client.reply()[2] == [b"x"]
        assert [row["worker"] for row in broker.workers("echo")] == [b"worker-1".hex()]

    def test_a_client_without_an_identity_gets_one_as_libzmq_gives_it(
        self, sockets: Sockets, broker: LiveBroker
    ) -> None:
        worker = self.worker(sockets, broker)
        self.client(sockets, broker).request(b"echo", b"x")
        address, _ = worker.take()
        assert len(address) == 5
        assert address[0] == 0

    def test_replies_find_their_clients_whatever_the_order(
        self, sockets: Sockets, broker: LiveBroker
    ) -> None:
        workers = [self.worker(sockets, broker) for _ in range(3)]
        broker.await_workers("echo", 3)
        clients = {body: self.client(sockets, broker) for body in (b"a", b"b", b"c")}
        for body, client in clients.items():
            client.request(b"echo", body)
        held = [(worker, *worker.take()) for worker in workers]
        for worker, address, body in reversed(held):
            worker.final(address, b"for", *body)
        for body, client in clients.items():
            assert client.reply() == ("final", b"echo", [b"for", body])

    def test_one_worker_gets_one_request_at_a_time(
        self, sockets: Sockets, broker: LiveBroker
    ) -> None:
        worker = self.worker(sockets, broker)
        clients = [self.client(sockets, broker) for _ in range(2)]
        for number, client in enumerate(clients):
            client.request(b"echo", b"%d" % number)
        broker.await_service("echo", queued=1, in_progress=1)
        address, body = worker.take()
        assert not worker.socket.has_message()
        worker.final(address, *body)
        worker.serve_one()
        assert sorted(client.reply()[2][0] for client in clients) == [b"0", b"1"]

    @pytest.mark.parametrize("size", [0, 1, 255, 256, 1 << 20])
    def test_a_body_of_any_size_comes_back(
        self, size: int, sockets: Sockets, broker: LiveBroker
    ) -> None:
        worker = self.worker(sockets, broker)
        client = self.client(sockets, broker)
        body = bytes(range(256)) * (size // 256) + bytes(size % 256)
        client.request(b"echo", body)
        worker.serve_one()
        assert client.reply()[2] == [body]

    def test_many_frames_come_back_in_order(self, sockets: Sockets, broker: LiveBroker) -> None:
        worker = self.worker(sockets, broker)
        client = self.client(sockets, broker)
        body = [b"%d" % number if number % 7 else b"" for number in range(1024)]
        client.request(b"echo", *body)
        worker.serve_one()
        assert client.reply()[2] == body

    def test_many_clients_are_all_served(self, sockets: Sockets, broker: LiveBroker) -> None:
        worker = self.worker(sockets, broker)
        clients = [self.client(sockets, broker) for _ in range(50)]
        for number, client in enumerate(clients):
            client.request(b"echo", b"%d" % number)
        for _ in clients:
            worker.serve_one()
        assert [client.reply()[2] for client in clients] == [[b"%d" % n] for n in range(50)]

    def test_workers_take_turns(self, sockets: Sockets, broker: LiveBroker) -> None:
        workers = [self.worker(sockets, broker) for _ in range(3)]
        broker.await_workers("echo", 3)
        client = self.client(sockets, broker)
        order = []
        for _ in range(9):
            client.request(b"echo", b"x")
            chosen = first_to_hear(workers)
            chosen.serve_one()
            client.reply()
            order.append(workers.index(chosen))
        assert sorted(order[:3]) == [0, 1, 2]
        assert order == order[:3] * 3

    # --- services -----------------------------------------------------------------------------
    def test_a_request_for_a_service_nobody_serves_waits_for_its_first_worker(
        self, sockets: Sockets, broker: LiveBroker
    ) -> None:
        client = self.client(sockets, broker)
        client.request(b"later", b"x")
        broker.await_service("later", queued=1, workers=0)
        self.worker(sockets, broker, service=b"later").serve_one()
        assert client.reply() == ("final", b"later", [b"x"])

    def test_a_request_that_nobody_serves_is_answered_where_the_operator_wants_it(
        self, sockets: Sockets, make_broker: MakeBroker
    ) -> None:
        broker = make_broker(policy=BrokerPolicy(service_grace_s=0.05, tell_old_clients=True))
        client = self.client(sockets, broker)
        status, reason = client.call(b"nowhere", b"x")
        assert status == b"requite-error NO_SERVICE"
        assert b"no worker serves nowhere" in reason

    def test_mmi_service_tells_who_is_there(self, sockets: Sockets, broker: LiveBroker) -> None:
        client = self.client(sockets, broker)
        assert client.call(b"mmi.service", b"echo") == [b"404"]
        worker = self.worker(sockets, broker)
        broker.await_workers("echo", 1)
        assert client.call(b"mmi.service", b"echo") == [b"200"]
        worker.disconnect()
        broker.await_workers("echo", 0)
        assert client.call(b"mmi.service", b"echo") == [b"404"]

    @pytest.mark.parametrize("name", [b"mmi.", b"mmi.nothing", b"mmi.service.echo"])
    def test_an_unknown_name_of_the_brokers_own_is_answered_501(
        self, name: bytes, sockets: Sockets, broker: LiveBroker
    ) -> None:
        assert self.client(sockets, broker).call(name, b"echo") == [b"501"]

    def test_pings_of_libzmq_are_answered(self, sockets: Sockets, broker: LiveBroker) -> None:
        client = self.client(
            sockets, broker, HEARTBEAT_IVL=100, HEARTBEAT_TIMEOUT=800, HEARTBEAT_TTL=5000
        )
        assert client.call(b"mmi.service", b"x") == [b"404"]
        # Without PONGs libzmq would disconnect after 900 ms.
        assert not client.socket.had_event(zmq.EVENT_DISCONNECTED, 1.5)
        assert client.call(b"mmi.service", b"x") == [b"404"]

    def test_peers_on_ipc(self, sockets: Sockets, make_broker: MakeBroker, tmp_path: Any) -> None:
        broker = make_broker(bind=f"ipc://{tmp_path}/broker")
        worker = self.worker(sockets, broker)
        client = self.client(sockets, broker)
        client.request(b"echo", b"x")
        worker.serve_one()
        assert client.reply()[2] == [b"x"]


class RfcSuite(ClientSuite):
    """All tests, for DEALER sockets, with which a client may also send out of turn."""

    # --- workers that leave -------------------------------------------------------------------
    def test_the_request_of_a_worker_that_vanished_goes_to_another(
        self, sockets: Sockets, broker: LiveBroker
    ) -> None:
        first = self.worker(sockets, broker)
        client = self.client(sockets, broker)
        client.request(b"echo", b"x")
        first.take()
        second = self.worker(sockets, broker)
        first.close()
        second.serve_one()
        assert client.reply()[2] == [b"x"]

    def test_the_request_of_a_worker_that_disconnected_goes_to_another(
        self, sockets: Sockets, broker: LiveBroker
    ) -> None:
        first = self.worker(sockets, broker)
        client = self.client(sockets, broker)
        client.request(b"echo", b"x")
        first.take()
        second = self.worker(sockets, broker)
        first.disconnect()
        second.serve_one()
        assert client.reply()[2] == [b"x"]

    def test_nothing_is_sent_to_a_worker_that_disconnected(
        self, sockets: Sockets, make_broker: MakeBroker
    ) -> None:
        broker = make_broker(policy=BrokerPolicy(heartbeat=QUICK))
        gone = self.worker(sockets, broker)
        broker.await_workers("echo", 1)
        gone.disconnect()
        broker.await_workers("echo", 0)
        while gone.socket.has_message():  # sent before the broker detected the disconnect
            assert gone.command()[0] == "heartbeat"
        self.client(sockets, broker).request(b"echo", b"x")
        broker.await_service("echo", queued=1)
        assert not gone.socket.has_message(3 * QUICK.interval_s)

    def test_disconnect_may_come_first(self, sockets: Sockets, broker: LiveBroker) -> None:
        worker = self.worker(sockets, broker, service=None)
        worker.disconnect()
        worker.heartbeat()  # the broker would answer an unknown worker with DISCONNECT
        assert self.client(sockets, broker).call(b"mmi.service", b"x") == [b"404"]
        assert not worker.socket.has_message()

    # --- heartbeats ---------------------------------------------------------------------------
    def test_a_silent_worker_is_dropped_and_its_request_goes_to_another(
        self, sockets: Sockets, make_broker: MakeBroker
    ) -> None:
        broker = make_broker(policy=BRISK)
        silent = self.worker(sockets, broker)
        client = self.client(sockets, broker)
        client.request(b"echo", b"x")
        silent.take()
        began = monotonic()
        other = self.worker(sockets, broker)
        taken = self._take_while_beating(other)
        assert monotonic() - began > 0.5 * LOST_AFTER_S
        other.final(*taken)
        assert client.reply()[2] == [b"x"]
        silent.awaited("disconnect")

    def _take_while_beating(self, worker: HandWorker) -> tuple[bytes, bytes]:
        end = monotonic() + 30
        while monotonic() < end:
            worker.heartbeat()
            try:
                address, body = worker.take(QUICK.interval_s / 2)
            except Silence:
                continue
            return address, body[0]
        raise Silence("no request came")

    def test_a_worker_that_heartbeats_may_take_its_time(
        self, sockets: Sockets, make_broker: MakeBroker
    ) -> None:
        broker = make_broker(policy=BRISK)
        slow = self.worker(sockets, broker)
        client = self.client(sockets, broker)
        client.request(b"echo", b"x")
        address, body = slow.take()
        done_at = monotonic() + 1.5 * LOST_AFTER_S
        while monotonic() < done_at:
            slow.heartbeat()
            assert slow.command()[0] == "heartbeat"
        slow.final(address, *body)
        assert client.reply()[2] == [b"x"]
        assert broker.service("echo")["redelivered"] == 0

    def test_the_broker_heartbeats_at_its_interval(
        self, sockets: Sockets, make_broker: MakeBroker
    ) -> None:
        broker = make_broker(policy=BrokerPolicy(heartbeat=QUICK))
        worker = self.worker(sockets, broker)
        came_at = []
        for _ in range(6):
            worker.awaited("heartbeat")
            came_at.append(monotonic())
            worker.heartbeat()
        assert (came_at[-1] - came_at[0]) / 5 > 0.5 * QUICK.interval_s
        # A single pause of the machine may delay a heartbeat, but not each of them.
        assert min(b - a for a, b in pairwise(came_at)) < 3 * QUICK.interval_s

    def test_the_broker_does_not_heartbeat_while_requests_flow(
        self, sockets: Sockets, make_broker: MakeBroker
    ) -> None:
        broker = make_broker(
            policy=BrokerPolicy(heartbeat=HeartbeatPolicy(interval_s=0.2, liveness=5))
        )
        worker = self.worker(sockets, broker)
        client = self.client(sockets, broker)
        end = monotonic() + 1.0  # five intervals
        pauses = 0  # pauses of this machine, each of which may let a heartbeat through
        while (began := monotonic()) < end:
            client.request(b"echo", b"x")
            worker.serve_one()
            client.reply()
            pauses += monotonic() - began > 0.1
        assert worker.heartbeats <= pauses

    def test_a_worker_registers_anew_with_a_broker_that_was_restarted(
        self, sockets: Sockets, processes: list[Process]
    ) -> None:
        """libzmq reconnects by itself; DISCONNECT tells a worker that it must register again."""
        broker = BrokerProcess()
        processes.append(broker)
        worker = self.worker(sockets, broker, RECONNECT_IVL=20)
        client = self.client(sockets, broker, RECONNECT_IVL=20)
        broker.await_workers("echo", 1)
        broker.kill()
        processes.append(BrokerProcess(bind=broker.endpoint))
        worker.heartbeat()
        worker.awaited("disconnect")
        worker.close()
        worker = self.worker(sockets, broker)
        client.request(b"echo", b"x")
        worker.serve_one()
        assert client.reply()[2] == [b"x"]

    def test_a_drained_broker_says_disconnect(
        self, sockets: Sockets, make_broker: MakeBroker
    ) -> None:
        broker = make_broker()
        worker = self.worker(sockets, broker)
        broker.await_workers("echo", 1)
        broker.drain()
        worker.awaited("disconnect")

    # --- connections --------------------------------------------------------------------------
    def test_a_request_that_nobody_serves_ends_in_silence(
        self, sockets: Sockets, make_broker: MakeBroker, caplog: pytest.LogCaptureFixture
    ) -> None:
        broker = make_broker(policy=BrokerPolicy(service_grace_s=0.05))
        client = self.client(sockets, broker)
        client.request(b"nowhere", b"x")
        broker.await_log(caplog, "NO_SERVICE")
        # The next reply belongs to the next request, so the first one got none.
        assert client.call(b"mmi.service", b"nowhere") == [b"404"]
        assert f"a client of MDP {self.rfc.version}" in caplog.text
        assert "gets no answer: NO_SERVICE" in caplog.text

    def test_an_identity_in_use_is_refused_and_its_holder_left_alone(
        self, sockets: Sockets, broker: LiveBroker, caplog: pytest.LogCaptureFixture
    ) -> None:
        holder = self.client(sockets, broker, identity=b"me")
        assert holder.call(b"mmi.service", b"x") == [b"404"]
        second = self.client(sockets, broker, identity=b"me", RECONNECT_IVL=20)
        second.request(b"mmi.service", b"x")
        broker.await_log(caplog, "identity refused")
        assert holder.call(b"mmi.service", b"x") == [b"404"]
        assert not second.socket.has_message()
        holder.socket.close()
        # libzmq reconnects until the identity is free. Data sent on refused connections is lost.
        eventually(lambda: self._is_answered(second), "the second client gets in")

    def _is_answered(self, client: HandClient) -> bool:
        client.request(b"mmi.service", b"x")
        return client.socket.has_message(0.05)

    def test_an_identity_is_handed_over_where_the_operator_wants_it(
        self, sockets: Sockets, make_broker: MakeBroker
    ) -> None:
        """A returning client is accepted at once, before its old connection is known to be dead."""
        broker = make_broker(handover=True)
        worker = self.worker(sockets, broker)
        old = self.client(sockets, broker, identity=b"me", RECONNECT_IVL=-1)
        old.request(b"echo", b"old")
        worker.take()
        new = self.client(sockets, broker, identity=b"me")
        assert new.call(b"mmi.service", b"echo") == [b"200"]
        assert old.socket.had_event(zmq.EVENT_DISCONNECTED, 30)
        broker.await_service("echo", cancelled=1)
        worker.final(b"me", b"late")  # for an abandoned request
        new.request(b"echo", b"new")
        worker.serve_one()
        assert new.reply()[2] == [b"new"]

    def test_logs_stay_quiet_when_all_is_well(
        self, sockets: Sockets, broker: LiveBroker, caplog: pytest.LogCaptureFixture
    ) -> None:
        worker = self.worker(sockets, broker)
        client = self.client(sockets, broker)
        client.request(b"echo", b"x")
        worker.serve_one()
        client.reply()
        worker.disconnect()
        broker.await_workers("echo", 0)
        assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
