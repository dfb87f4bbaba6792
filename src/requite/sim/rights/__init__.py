"""Simulations of a broker with an access file: principals with rights and quotas.

`operator.py` is the access file, which changes while the broker runs; `processes.py` the broker,
clients and workers, which have credentials; `strangers.py` the processes that try what they have no
right to; `watch.py` reports what the broker sends to whom, and what it holds for whom;
`checkers.py` has I16 to I19.
"""
