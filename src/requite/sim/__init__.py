"""The deterministic simulator: the real engines and framings in a world of virtual time and faults.

One seed gives the knobs, the knobs give the world, its processes, their work and its faults; then
the run is a pure function: `run(seed, scenario, options) -> Result`. A run has two phases. First
faults strike, and the safety of every call and every table is checked as it goes. Then all faults
heal, and what is pending must settle, the tables must equal the live peers, and a drain must leave
nothing behind. The invariants I1 to I15 are those of ARCHITECTURE.md.

    seed ──knobs.py, scenarios.py──► Knobs ──workload.py, faults.py──► what will happen, and when
    world.py      virtual clock and queue of events
    network.py    nodes, routes between them, dialling; stream.py: one connection, byte by byte
    process.py    engine + `requite.shell.Host` + streams: crash, restart, freeze
    roles.py      the processes there are: broker, clients, workers, intruders
    checkers/     what must hold, one class per invariant
    run.py        all of it in order
"""

from requite.sim.run import Options, Result, run

__all__ = ["Options", "Result", "run"]
