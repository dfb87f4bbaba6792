"""Simulations of a fail-over pair alone: two servers, their clients, and an operator.

knobs.py        the parameters of a run
scenarios.py    the scenarios, and how knobs are drawn
server.py       one server: a process with one half of the pair
clients.py      clients that try one server after the other
intruder.py     intruders at the address where the servers listen for each other
ledger.py       the answered calls, and the invariants (I1, I12)
words.py        describes messages in words
simulation.py   the phases of a run
"""
