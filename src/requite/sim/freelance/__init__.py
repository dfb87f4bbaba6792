"""Simulations of the Freelance pattern: clients that are connected to several servers.

seed ──scenarios.py──► FreelanceKnobs ──workload.py, faults.py──► Plan
party.py       a process that listens, or stays connected to listeners
clients.py, servers.py, intruder.py: the parties
words.py       reads and describes messages without the code of the engines under test
watch.py       every input and effect of an engine, seen from outside
checkers.py, choices.py, queues.py: the invariants; tables.py: the state once faults have ended
simulation.py  the phases of a run
"""
