"""Keyed worker pools on RabbitMQ: groups of workers that start with the first request of their key.

Clients publish requests to an exchange, by key. While a key's queue is bound to the exchange,
RabbitMQ routes its requests to workers without the manager. A request whose key has no bound queue
becomes an *orphan*: the manager declares and binds a queue, starts a group of workers, and then
republishes the orphan. An idle group first loses its binding, then its workers and its queue.

    inputs.py, effects.py  inputs and effects of the engines, which do no I/O
    config.py              settings: `pool.toml`, environment and flags
    tracker.py             the target state of groups: active, unbound, gone; generations
    queues.py              control loop of request queues: declare, bind, unbind, delete
    services.py            the same at a broker of MDP, which has services in place of queues
    groups.py              control loop of worker groups: start, stop, replace
    orphans.py             requests that wait for their key's queue
    deadletters.py         answers requests that no worker will answer, with the reason
    activity.py            filters the activity reports of workers
    engine.py              the engine of a manager: all of the above
    token.py               reads the file with the token that operators send
"""
