"""Simulations of the Freelance pattern: clients, and the servers that all of them are connected to.

seed ──scenarios.py──► FreelanceKnobs ──workload.py, faults.py──► what will happen
party.py       a process that listens, or keeps connected to those who do
clients.py, servers.py, intruder.py: the parties
words.py       messages, read and put into words without any help of the engines under test
watch.py       every input and effect of an engine, seen from outside
checkers.py, choices.py, queues.py: what must hold; tables.py: when nothing goes wrong any more
simulation.py  all of it in order
"""
