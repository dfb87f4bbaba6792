"""Simulations of the scalability protocols: clients, workers and devices, connected somehow.

seed ──scenarios.py, drawing.py──► ScalabilityKnobs ──workload.py, faults.py──► what will happen
topology.py   who is connected with whom, and who dials; shapes.py: the kinds there are
party.py      a process with an endpoint: listens, and keeps connected
clients.py, workers.py, devices.py, intruder.py: the parties
stack.py      tags and bodies, read without any help of the engines under test
watch.py      every input and effect of an engine, seen from outside
checkers/     what must hold; tables.py: when nothing goes wrong any more
simulation.py all of it in order; script.py: a scenario that is written down
"""
