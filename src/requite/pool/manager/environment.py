"""What workers are told when they start ("Scalable async RPC", section "Worker protocol")."""

from __future__ import annotations

from collections.abc import Callable

from requite.pool.config import PoolConfig
from requite.protocols.amqp.topology import Pool


def environment_of(config: PoolConfig) -> Callable[[str, str], dict[str, str]]:
    """Return what makes the variables of a worker from its key and its id."""
    pool = Pool(config.pool.name)
    common = {
        "WORKER_POOL": config.pool.name,
        "WORKER_ACTIVITY_EXCHANGE": pool.activity_exchange,
        "WORKER_AMQP_URL": config.workers.amqp_url or config.rabbitmq.url,
        "WORKER_PREFETCH": str(config.workers.prefetch),
    }

    def of(key: str, worker_id: str) -> dict[str, str]:
        return {
            **common,
            "WORKER_ID": worker_id,
            "WORKER_KEY": key,
            "WORKER_REQUESTS_QUEUE": pool.request_queue(key),
        }

    return of
