"""Compare requite over SP with nng and pynng: `python -m bench.sp`.

Request and reply over TCP on the loopback, with client, service and device in a process each: 64
requests in flight, one at a time, and through a device. Lines with nng in C at one end show which
side limits the rate.

Each round has one turn of every contender. Figures are medians over rounds; ratios are taken within
a round. No benchmark asserts a time. It reports figures, and whether they reach the goals.
"""
