"""Measure RPC over RabbitMQ, and the manager of a pool: `python -m bench.amqp`.

Four measurements on one RabbitMQ of the bench's own:

- *calls*: calls per second and processor time per call, beside RPC written with aio-pika and with
  pika. Every contender has its turn in each round; figures are medians over the rounds, ratios are
  taken within a round.
- *law*: the throughput law P = C / L of "RPC over AMQP", section "Limits on throughput".
- *start*: the time from the first request of a new key to its reply, by the pool's manager.
- *groups*: what a manager with a thousand groups costs.

Nothing here asserts a time: a figure is reported, and beside it whether it reaches the goal.
"""
