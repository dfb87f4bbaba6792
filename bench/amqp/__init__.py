"""Measure RPC over RabbitMQ, and the manager of a pool: `python -m bench.amqp`.

Four measurements on a private RabbitMQ:

- *calls*: calls per second and processor time per call, compared with RPC written with aio-pika and
  with pika. Each round has one turn of every contender; figures are medians over rounds, ratios are
  taken within a round.
- *law*: the throughput law P = C / L of "RPC over AMQP", section "Limits on throughput".
- *start*: the time from the first request of a new key to its reply, by the pool's manager.
- *groups*: the cost of a manager with a thousand groups.

No benchmark asserts a time. It reports figures, and whether they reach the goals.
"""
