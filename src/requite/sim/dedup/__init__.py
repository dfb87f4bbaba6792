"""Simulations of services that run each request once, while processes crash.

knobs.py        the parameters of a run, beside those of every run with a broker
scenarios.py    the scenarios
store.py        a slow log of replies on a disk
workers.py      workers with `Dedup`
clients.py      clients whose users repeat the calls of others
checkers.py     each key runs once (I4), and every caller gets its reply
simulation.py   the phases of a run
"""
