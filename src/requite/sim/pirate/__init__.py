"""Runs of the Pirates: lazy clients against a server, or against a queue and its workers.

`knobs.py` and `scenarios.py` say what a run is made of, `workload.py` what is asked, `parties.py`
who takes part, `intruder.py` who should not, `watch.py` looks at every input and effect of their
engines, `checkers.py` says what must hold, `simulation.py` has the phases.
"""
