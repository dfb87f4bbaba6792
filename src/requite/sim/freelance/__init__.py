"""Simulations of the Freelance pattern: clients that are connected to several servers.

knobs.py, scenarios.py   the parameters of a run, and how a seed draws them
parties.py               the processes, and the observer of their engines
words.py                 reads and describes messages without the code of the engines under test
checkers.py, choices.py, queues.py: the invariants
simulation.py            the checkers, tables and phases of a run; its scripts
"""
