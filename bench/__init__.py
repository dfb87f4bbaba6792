"""Compare requite with other brokers and clients on this machine: `python -m bench`.

Two kinds of measurement, both interleaved run by run and reported as medians and ratios:

- *broker*: what a broker costs. One raw load generator (`bench.load`) drives every broker that
  speaks the same dialect, so that only the broker differs; the processor time is that of the
  broker's process alone.
- *end to end*: what a user gets. A Python client, the broker and Python workers, each with its own
  library (`bench.peers`).

The scalability protocols, which know no broker, are compared with nng: `python -m bench.sp`.

Nothing here asserts a time: a figure is reported, and beside it whether it reaches the goal.
"""
