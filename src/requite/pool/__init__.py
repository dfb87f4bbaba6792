"""Keyed worker pools on RabbitMQ: groups of workers that start with the first request of their key.

Requests go to an exchange, by key. As long as a key's queue is bound to it, nobody stands between
caller and worker. What no queue is bound for becomes an *orphan*: the manager of the pool has a
queue made and bound and a group of workers started, and only then hands the orphan on. A group that
has had nothing to do for a while loses first its binding, then its workers and its queue.

    inputs.py, effects.py  what the engines are fed, and what they answer: no I/O in any of them
    config.py              what may be set, in `pool.toml`, the environment and flags
    tracker.py             which groups should be there: active, unbound, gone; generations
    queues.py              makes request queues so: declare, bind, unbind, delete
    services.py            in place of queues, where a broker of MDP has the pool
    groups.py              makes groups so: start, stop, replace
    orphans.py             requests without a queue wait for it, each key for itself
    deadletters.py         requests that nobody will answer are answered, with the reason
    activity.py            which reports of workers say that a group is still needed
    engine.py              all of them together: what a manager is made of
"""
