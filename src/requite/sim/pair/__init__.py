"""Simulations of a fail-over pair by itself: two servers, those who ask them, and an operator.

knobs.py        what a run is made of
scenarios.py    what may go wrong, and how knobs are drawn
server.py       one server: a process with one half of the pair
askers.py       clients that ask one server after the other
intruder.py     strangers at the address where the servers listen for each other
ledger.py       what was answered by whom, and what must hold (I1, I12)
words.py        messages in words
simulation.py   all of it
"""
