"""Simulations of the scalability protocols: clients, workers and devices in any topology.

seed ──scenarios.py, drawing.py──► ScalabilityKnobs ──workload.py, faults.py──► Plan
topology.py   the channels, and which end of each dials; shapes.py: the kinds of topologies
party.py      a process with an endpoint: it listens, and stays connected
clients.py, workers.py, devices.py, intruder.py: the parties
stack.py      reads tags and bodies without the code of the engines under test
watch.py      every input and effect of an engine, seen from outside
checkers/     the invariants; tables.py: the state once faults have ended
simulation.py the phases of a run; script.py: scripted scenarios
"""
