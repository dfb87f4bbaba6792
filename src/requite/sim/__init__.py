"""The deterministic simulator: the real engines and framings in a world of virtual time and faults.

One seed gives the knobs, the knobs give the world, its processes, their work and its faults; then
the run is a pure function: `run(seed, scenario, options) -> Result`. A run has two phases. First
faults strike, and the safety of every call and every table is checked as it goes. Then all faults
heal, and what is pending must settle, the tables must equal the live peers, and a drain must leave
nothing behind. The invariants I1 to I15 are those of ARCHITECTURE.md.

    seed ──knobs.py, scenarios.py──► Knobs ──workload.py, faults.py──► what will happen, and when
    world.py      virtual clock and queue of events
    network.py    nodes, routes between them, dialling
    stream.py     one end of a connection; pipe.py: the bytes under way
    process.py    engine + `requite.shell.Host` + streams: crash, restart, freeze
    roles.py      the broker; clients.py, workers.py, intruder.py: those who dial it
    watch.py      every input and effect of an engine, seen from outside; watch_broker.py
    history.py    what has happened, as nouns; transcript.py: as text
    checkers/     what must hold, one class per invariant
    run.py        all of it in order; script.py: a scenario that is written down
"""

from requite.sim.run import Options, Result, run

__all__ = ["Options", "Result", "run"]
