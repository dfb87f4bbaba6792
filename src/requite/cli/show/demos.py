"""The demos: which processes each starts, who calls them how, and what fails."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from requite.cli.show import broker, faults, pool, pool_faults, traffic
from requite.cli.show.description import Demo, Fault, Role
from requite.cli.show.run import METHOD, Run
from requite.core.liveness import HeartbeatPolicy
from requite.request import RetryPolicy

# All calls in flight retry after each failure; a retry budget would fail some of them.
_RETRY: Final = RetryPolicy(attempts=50, budget=1.0, budget_burst=1_000_000, backoff_max=0.5)
# Without a broker's heartbeats, clients notice a lost request by its timeout only.
_RESEND: Final = replace(_RETRY, attempt_timeout=0.5)
# RabbitMQ 3.10 may withhold a request that arrives while its queue is declared or deleted. Clients
# send it again after a time that is longer than a restart.
_RESEND_AFTER_RESTART: Final = replace(_RETRY, attempt_timeout=20.0)

_HEARTBEAT: Final = HeartbeatPolicy(interval_s=0.2, liveness=4)  # short: failures show soon
_HEARTBEAT_OPTIONS: Final = " --heartbeat-interval=0.2 --liveness=4"
_WORKER: Final = "worker requite.examples.typed:airports "
_MAJORDOMO_CLIENT: Final = {"service": METHOD, "retry": _RETRY, "heartbeat": _HEARTBEAT}

_USUAL_FAULTS: Final = (
    Fault("worker_kills", (faults.kill_worker,)),
    Fault("broker_kills", (faults.kill_broker,)),
    Fault("stops", (faults.stop_worker,)),
)


def _pirate(workers: Role, *queues: Role) -> Demo:
    return Demo(
        Run,
        brokers=queues,
        workers=workers,
        url="pirate://{front}",
        client={"retry": _RESEND},
        connection_per_call=True,
        traffic=traffic.call,
        faults=_USUAL_FAULTS,
    )


def _queued_pirate(protocol: str, options: str = "") -> Demo:
    bind = "--front=tcp://{front} --back=tcp://{back}"
    connect = f"--connect=pirate://{{back}}?protocol={protocol}"
    return _pirate(
        Role("worker {n}", f"{_WORKER}{connect}{options}", count=None),
        Role("queue", f"queue --protocol={protocol} {bind}{options}"),
    )


def _freelance(model: str, retry: RetryPolicy | None = _RESEND) -> Demo:
    return Demo(
        Run,
        workers=Role("server {n}", f"{_WORKER}--bind=flp://{{own}}?model={model}", count=None),
        url=f"flp://{{workers}}?model={model}",
        client={"retry": retry},
        traffic=traffic.call,
        faults=_USUAL_FAULTS,
    )


def _pair_broker(role: str, other: str) -> Role:
    bind = (
        f"--bind=tcp://{{{role}}} --pair-bind=tcp://{{{role}_link}} --peer=tcp://{{{other}_link}}"
    )
    return Role(role, f"broker --{role} {bind} --pair-heartbeat=0.25{_HEARTBEAT_OPTIONS}")


DEMOS: Final[Mapping[str, Demo]] = {
    "lazy-pirate": _pirate(Role("server", _WORKER + "--bind=pirate://{front}")),
    "simple-pirate": _queued_pirate("simple"),
    "paranoid-pirate": _queued_pirate("paranoid", _HEARTBEAT_OPTIONS),
    "majordomo": Demo(
        broker.BrokerRun,
        # A request may lose several workers to the kills; the broker must not call it poisonous.
        brokers=(
            Role("broker", "broker --bind=tcp://{broker} --attempts=50" + _HEARTBEAT_OPTIONS),
        ),
        # With a capacity of 8, each kill hits several requests.
        workers=Role(
            "worker {n}",
            _WORKER + "--connect=mdp://{broker} --capacity=8" + _HEARTBEAT_OPTIONS,
            count=None,
        ),
        url="mdp://{broker}",
        client=_MAJORDOMO_CLIENT,
        traffic=traffic.call,
        faults=(
            Fault("worker_kills", (broker.kill_worker,)),
            Fault("broker_kills", (broker.kill_broker,)),
            Fault("stops", (broker.stop_worker,)),
        ),
        is_audited=True,
    ),
    "titanic": Demo(
        Run,
        brokers=(
            Role(
                "broker",
                "broker --bind=tcp://{broker} --titanic={folder}/requests" + _HEARTBEAT_OPTIONS,
            ),
        ),
        workers=Role(
            "worker {n}", _WORKER + "--connect=mdp://{broker}" + _HEARTBEAT_OPTIONS, count=None
        ),
        url="mdp://{broker}",
        client=_MAJORDOMO_CLIENT,
        traffic=traffic.submit,
        faults=_USUAL_FAULTS,
    ),
    # Each kill hits the other broker: the one that took over after the last kill stays active.
    "binary-star": Demo(
        Run,
        brokers=(_pair_broker("primary", "backup"), _pair_broker("backup", "primary")),
        workers=Role(
            "worker {n}",
            _WORKER + "--connect=mdp://{primary},{backup}" + _HEARTBEAT_OPTIONS,
            count=None,
        ),
        url="mdp://{primary},{backup}",
        client=_MAJORDOMO_CLIENT,
        traffic=traffic.call,
        faults=_USUAL_FAULTS,
    ),
    "freelance-failover": _freelance("failover"),
    "freelance-shotgun": _freelance("shotgun", retry=None),
    "freelance-agent": _freelance("agent"),
    # `PoolRun` starts RabbitMQ; the manager starts the workers.
    "pool": Demo(
        pool.PoolRun,
        brokers=(Role("manager", "pool run --config={folder}/pool.toml", ready=": active$"),),
        workers=None,
        url="{rabbitmq}?pool=countries",
        client={"retry": _RESEND_AFTER_RESTART},
        traffic=pool.call_groups,
        faults=(
            Fault("worker_kills", (pool_faults.kill_worker,)),
            Fault("broker_kills", (pool_faults.kill_manager,)),
            Fault("broker_kills", (pool_faults.await_queues, pool_faults.kill_rabbitmq)),
            Fault("stops", (pool_faults.stop_worker,)),
            Fault(None, (pool_faults.let_group_idle, pool_faults.await_idle_group)),
        ),
        is_audited=True,
        time_limit_s=300.0,
    ),
}
"""The demos by name, in the order of the Guide's chapter."""

_ALIASES: Final = {
    "lazy": "lazy-pirate",
    "simple": "simple-pirate",
    "paranoid": "paranoid-pirate",
    "pirate": "paranoid-pirate",
    "ppp": "paranoid-pirate",
    "mdp": "majordomo",
    "tsp": "titanic",
    "binarystar": "binary-star",
    "pair": "binary-star",
    "freelance": "freelance-agent",
    "flp": "freelance-agent",
    "agent": "freelance-agent",
    "failover": "freelance-failover",
    "shotgun": "freelance-shotgun",
    "pools": "pool",
    "amqp": "pool",
    "rabbitmq": "pool",
}
"""Other names: that of the protocol, or a part of the name."""


def find_demo(name: str) -> str:
    """Return the name of the demo for a name in any spelling: `Paranoid Pirate`, `ppp`.

    Raises `ValueError`, which lists all names.
    """
    plain = "-".join(name.lower().replace("_", " ").replace("-", " ").split())
    found = _ALIASES.get(plain, plain)
    if found not in DEMOS:
        raise ValueError(f"unknown pattern {name!r}; the patterns are {', '.join(DEMOS)}")
    return found
