"""Simulations of the scalability protocols: clients, workers and devices, connected somehow.

topology.py    who is connected with whom, and who dials; shapes.py: how they are drawn
knobs.py, scenarios.py, workload.py    what a run is made of
party.py       a process with an endpoint: listens, and keeps connected
clients.py, workers.py, devices.py, intruder.py    the parties
stack.py       tags and bodies, read without any help of the engines under test
watch.py       every input and effect of an engine, seen from outside
faults.py      what can go wrong here
checkers/      what must hold
simulation.py  all of it in order; script.py: a scenario that is written down
"""
