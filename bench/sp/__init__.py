"""Compare requite over the scalability protocols with nng and pynng: `python -m bench.sp`.

Request and reply over TCP on the loopback, client, service and device each in a process of its own:
with 64 requests in flight, one at a time, and through a device. Lines that have nng in C at one end
show which side bounds the pace.

Every contender has its turn in each round; figures are medians over the rounds, ratios are taken
within a round. Nothing here asserts a time: a figure is reported, and beside it whether it reaches
the goal.
"""
