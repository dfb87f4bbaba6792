"""Compare the rate of durable requests: `python -m bench.durable`.

Each client submits a request of 1 KiB, and the next one when the first is acknowledged as stored on
disk. requite's Titanic is compared with RabbitMQ (a durable queue, persistent messages, publisher
confirms) and with SQLite (WAL, synchronous=FULL). SQLite is a library: no request crosses a socket,
and it has no replies.

Each round has one turn of every contender. Figures are medians over rounds; ratios are taken within
a round. No benchmark asserts a time. It reports figures, and whether they reach the goals.
"""
