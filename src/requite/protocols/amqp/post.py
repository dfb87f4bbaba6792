"""Where a responder takes its requests from, and what it tells about itself."""

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


@dataclass(frozen=True, slots=True)
class Post:
    """The place of one worker.

    - `queue`: where its requests come from. With `declares`, the worker makes it, with `arguments`,
      where it is not there; a pool's queues are its manager's to make.
    - `control_exchange`, `control_key`: where it hears of cancels; it makes that exchange, too,
      if it `declares`.
    - `activity_exchange`, `key`: where it reports what it does ("": nowhere), and by which key.
    - `worker_id`: what it is called in replies and reports.
    - `answers_all`: a request without reply-to is given back to be dead-lettered, rather than run.
    """

    queue: str
    worker_id: str
    declares: bool = True
    arguments: Mapping[str, Any] = field(default_factory=lambda: SERVICE_QUEUE_ARGUMENTS)
    control_exchange: str = CONTROL_EXCHANGE
    control_key: str = ""
    activity_exchange: str = ""
    key: str = ""
    answers_all: bool = True


def service_post(queue: str, worker_id: str) -> Post:
    """Make the post of a worker of a service without a pool.

    Raises `ConfigurationError` for a name that no queue can have.
    """
    check_queue(queue)
    return Post(queue, worker_id, control_key=queue)


def pool_post(
    pool: Pool, key: str, worker_id: str, queue: str = "", activity_exchange: str = ""
) -> Post:
    """Make the post of a worker of a pool's group. `queue` and `activity_exchange` are what the
    manager says they are, where that differs from the names that pools usually have.

    Raises `ConfigurationError` for a key or names that cannot be.
    """
    pool.check_key(key)
    queue = queue or pool.request_queue(key)
    check_queue(queue)
    return Post(
        queue,
        worker_id,
        declares=False,
        arguments={},
        control_exchange=pool.control_exchange,
        activity_exchange=activity_exchange or pool.activity_exchange,
        key=key,
        answers_all=False,
    )
