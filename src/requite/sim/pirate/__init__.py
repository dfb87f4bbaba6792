"""Simulations of the Pirate patterns: lazy clients with servers, or with a queue and its workers.

knobs.py, scenarios.py   the parameters of a run, and how a seed draws them
parties.py               the processes
checkers.py, presence.py, queueing.py: the invariants
simulation.py            the tables and phases of a run; its scripts
"""
