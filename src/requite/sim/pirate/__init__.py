"""Simulations of the Pirate patterns: lazy clients with servers, or with a queue and its workers.

`knobs.py` and `scenarios.py` have the parameters of a run, `workload.py` the calls, `parties.py`
the processes, `intruder.py` the intruders. `watch.py` observes every input and effect of the
engines, `checkers.py` has the invariants, `simulation.py` the phases.
"""
