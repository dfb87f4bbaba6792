"""Read from a `BrokerBench` which messages an MDP 0.3 broker has sent."""

from __future__ import annotations

from tests.support.broker import BrokerBench

from requite.protocols.majordomo.dialects import by_version
from requite.protocols.majordomo.wire import WorkerCancel
from requite.request import Status

MDP_03 = by_version("0.3")


def outcomes(bench: BrokerBench, client: str = "c") -> list[tuple[int, Status]]:
    """Return id and status of each FINAL sent to a client."""
    return [(final.request_id, Status(final.status)) for final in bench.finals(client)]


def cancelled(bench: BrokerBench, worker: str = "w") -> list[int]:
    """Return the dispatch ids of the CANCELs sent to a worker."""
    return [cancel.dispatch_id for cancel in bench.sent(worker, WorkerCancel)]


def dispatched(bench: BrokerBench, worker: str = "w") -> list[int]:
    """Return the dispatch ids of the REQUESTs sent to a worker."""
    return [request.dispatch_id for request in bench.requests(worker)]
