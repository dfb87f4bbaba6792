"""A worker's assignment: the queue it consumes, and the exchanges that it uses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from requite.protocols.amqp.topology import (
    CONTROL_EXCHANGE,
    SERVICE_QUEUE_ARGUMENTS,
    Pool,
    check_queue,
)
from requite.value import Value


@dataclass(frozen=True, slots=True)
class Assignment(Value):
    """The queue and exchanges of one worker.

    - `queue`: the request queue. With `declares`, the worker declares it with `arguments` if it is
      missing; the queues of a pool are declared by its manager.
    - `control_exchange`, `control_key`: the source of cancels. With `declares`, the worker declares
      the exchange as well.
    - `drain_exchange`: the source of drains ("": none).
    - `activity_exchange`, `key`: exchange ("": none) and routing key of its activity reports.
    - `worker_id`: its name in replies and reports.
    - `answers_all`: dead-letter a request without reply-to (`basic.reject`) instead of running it.
    """

    queue: str
    worker_id: str
    declares: bool = True
    arguments: Mapping[str, Any] = field(default_factory=lambda: SERVICE_QUEUE_ARGUMENTS)
    control_exchange: str = CONTROL_EXCHANGE
    control_key: str = ""
    drain_exchange: str = ""
    activity_exchange: str = ""
    key: str = ""
    answers_all: bool = True


def service_assignment(queue: str, worker_id: str) -> Assignment:
    """Return the assignment of a worker of a service without a pool.

    Raises `ConfigurationError` for an invalid queue name.
    """
    check_queue(queue)
    return Assignment(queue, worker_id, control_key=queue)


def pool_assignment(
    pool: Pool, key: str, worker_id: str, queue: str = "", activity_exchange: str = ""
) -> Assignment:
    """Return the assignment of a worker of a pool's group. `queue` and `activity_exchange` are set
    where the manager uses other names than pools do by default.

    Raises `ConfigurationError` for an invalid key or name.
    """
    pool.check_key(key)
    queue = queue or pool.request_queue(key)
    check_queue(queue)
    return Assignment(
        queue,
        worker_id,
        declares=False,
        arguments={},
        control_exchange=pool.control_exchange,
        drain_exchange=pool.drain_exchange,
        activity_exchange=activity_exchange or pool.activity_exchange,
        key=key,
        answers_all=False,
    )
