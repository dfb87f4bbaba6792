"""Environment variables of workers ("Scalable async RPC", section "Worker protocol").

A broker of MDP has neither queues nor exchanges: a group is a service of the broker.
"""

from __future__ import annotations

from collections.abc import Callable

from requite.pool.config import PoolConfig
from requite.protocols.amqp.topology import Pool
from requite.protocols.majordomo.keyed import service_of


def environment_of(config: PoolConfig) -> Callable[[str, str], dict[str, str]]:
    """Return a function of key and worker id that returns a worker's variables."""
    return _of_broker(config) if config.broker.url else _of_rabbitmq(config)


def _of_broker(config: PoolConfig) -> Callable[[str, str], dict[str, str]]:
    pool = config.pool.name
    url = config.workers.broker_url or config.broker.url

    def of(key: str, worker_id: str) -> dict[str, str]:
        return {
            "WORKER_POOL": pool,
            "WORKER_BROKER_URL": url,
            "WORKER_PREFETCH": str(config.workers.prefetch),
            "WORKER_ID": worker_id,
            "WORKER_KEY": key,
            "WORKER_SERVICE": service_of(pool, key),
        }

    return of


def _of_rabbitmq(config: PoolConfig) -> Callable[[str, str], dict[str, str]]:
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
