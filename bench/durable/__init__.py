"""Compare how fast requests are kept on disk: `python -m bench.durable`.

Each client hands in a request of 1 KiB and waits until it has been told that it is on the disk,
then the next. requite's Titanic stands beside RabbitMQ (a durable queue, persistent messages,
publisher confirms) and beside SQLite (WAL, synchronous=FULL), which is a library: nothing there
crosses a socket, and there is no reply to fetch.

Every contender has its turn in each round; figures are medians over the rounds, ratios are taken
within a round. Nothing here asserts a time: a figure is reported, and beside it whether it reaches
the goal.
"""
