"""The environment variables of workers in the tests of drivers."""

from __future__ import annotations

from collections.abc import Callable

from requite.pool.drivers.base import Label
from requite.protocols.amqp.topology import Pool


def environment_of(label: Label) -> Callable[[str, str], dict[str, str]]:
    """Return the function that returns a worker's environment for its key and id."""

    def of(key: str, worker_id: str) -> dict[str, str]:
        return {
            "WORKER_ID": worker_id,
            "WORKER_KEY": key,
            "WORKER_POOL": label.pool,
            "WORKER_REQUESTS_QUEUE": Pool(label.pool).request_queue(key[:20]),
            "WORKER_AMQP_URL": "amqp://127.0.0.1:1/",
        }

    return of
