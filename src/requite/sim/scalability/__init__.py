"""Simulations of the scalability protocols: clients, workers and devices in any topology.

knobs.py, scenarios.py   the parameters of a run, and how a seed draws them
topology.py              the channels, which end of each dials, and the shapes
parties.py, intruder.py  the processes, and the observer of their engines
stack.py                 reads and describes messages without the code of the engines under test
checkers/                the invariants
simulation.py            the tables and phases of a run; its scripts
"""
