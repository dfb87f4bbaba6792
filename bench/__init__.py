"""Compare requite with other brokers and clients on this machine: `python -m bench`.

Three kinds of measurement, all interleaved run by run and reported as medians and ratios:

- *broker*: the cost of a broker. One raw load generator (`bench.load`) drives all brokers of a
  dialect, so that only the broker differs. Processor time is that of the broker's process alone.
- *native*: the same with a load in C, which takes as little as possible of the machine from the
  broker, and with a broker in C on libzmq (`bench.brokers.native`).
- *end to end*: a Python client, the broker and Python workers, each with its own library
  (`bench.peers`).

SP, which has no broker, is compared with nng: `python -m bench.sp`.

No benchmark asserts a time. It reports figures, and whether they reach the goals.
"""
