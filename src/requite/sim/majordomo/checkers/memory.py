"""Check the limits of the broker's memory, after each of its inputs."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

from requite.protocols.majordomo.parties import Client, Worker
from requite.sim.kernel.history import Checker, History


class MemoryBounded(Checker):
    """The broker holds no more than its limits allow.

    A request that arrives below a limit is accepted, whatever its size. So without the last one,
    the requests of a client, and those of all, are below the limit. Clients of MDP 0.1 and 0.2 may
    exceed it with requests that were already read, and are not checked.
    """

    invariant = "memory"
    sentence = "no peer makes the broker hold more than its limits"

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._expired: dict[Any, int] = {}  # of workers, at the last look
        self._named: dict[Any, int] = {}  # of clients, at the last look

    @cached_property
    def _is_on(self) -> bool:
        is_limited: bool = self.knobs.is_limited
        return is_limited

    def broker_rested(self, broker: Any, event: Any) -> None:
        """Check all tables of a broker after an input."""
        if not self._is_on:
            return
        engine = broker.hub.engine
        parties = [*engine.parties.values()]
        clients = [each for each in parties if isinstance(each, Client)]
        workers = [each for each in parties if isinstance(each, Worker)]
        peer = getattr(event, "peer", None)
        for what in (
            *self._of_clients(clients, peer),
            *self._of_workers(workers, broker.clock()),
            *self._of_links(broker.host, peer),
        ):
            self.violate(what)

    def _of_clients(self, clients: list[Client], peer: Any) -> Iterator[str]:
        knobs, total, named = self.knobs, [], self._named
        self._named = {client.peer: client.named for client in clients}
        for client in clients:
            sizes = [pending.size for pending in client.pending.values()]
            total += sizes
            if not client.dialect.has_ids:
                continue
            before = sum(sizes[:-1])
            if sizes and before >= knobs.client_pending_bytes_max:
                yield f"a client had {before} bytes pending when one more request was accepted"
            # It may also become the namer of services that others have named.
            named_max = max(named.get(client.peer, 0), knobs.client_services_max)
            if client.peer is peer and client.named > named_max:
                yield f"a client has named {client.named} services without a worker"
        if total and all(client.dialect.has_ids for client in clients if client.pending):
            before = sum(total) - max(total)
            if before >= knobs.pending_bytes_max:
                yield f"{before} bytes were pending when one more request was accepted"

    def _of_workers(self, workers: list[Worker], now: float) -> Iterator[str]:
        knobs, before = self.knobs, self._expired
        self._expired = {worker.peer: worker.expired for worker in workers}
        for worker in workers:
            if len(worker.holds) > knobs.worker_capacity_max:
                yield f"a worker holds {len(worker.holds)} requests"
            is_more = worker.expired > before.get(worker.peer, 0)
            is_mute = now - worker.expired_since >= knobs.heartbeat.silence_s
            if is_more and is_mute and worker.expired >= knobs.worker_expired_max:
                yield f"a worker stays that let {worker.expired} requests in a row expire"

    def _of_links(self, host: Any, current: Any) -> Iterator[str]:
        """Check all links but the current one, whose bytes the host has yet to count."""
        links = [link for link in host.links if link.accepted and not link.ended]
        size = sum(link.framing.partial_size for link in links if link is not current)
        if size > self.knobs.partial_size_max:
            yield f"the broker holds {size} bytes of incomplete messages"
