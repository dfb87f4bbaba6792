"""The deterministic simulator: the real engines and framings in a world of virtual time and faults.

One seed gives a plan: the knobs, and with them the processes, their work and its faults. A plan has
a text, which `read_plan` reads. Then the run is a pure function: `play(plan, options) -> Result`,
and `run(seed, scenario, options)` is both. A run has two phases. First
faults strike, and the safety of every call and every table is checked as it goes. Then all faults
heal, and what is pending must settle, the tables must equal the live peers, and a drain must leave
nothing behind. The invariants I1 to I15 are those of ARCHITECTURE.md.

    seed ──scenarios.py──► Knobs ──workload.py, faults.py──► Plan: what will happen, and when
    plan.py       a plan, its text and back
    shrink.py     the smallest plan that still violates an invariant
    world.py      virtual clock and queue of events
    network.py    nodes, routes between them, dialling; medium.py: what all routes share
    stream.py     one end of a connection; pipe.py: the bytes under way
    process.py    one life after the other on a node: crash, restart, freeze, power loss;
                  engine_process.py: with an engine in a `requite.shell.Host`
    user.py       who makes the calls of a client
    trouble.py    faults, as they are performed
    history.py    what has happened, as nouns; transcript.py: as text; diagram.py: drawn;
                  coverage.py: counted
    simulation.py the phases of a run, and its result; run.py: one run, and its plan
    script.py     a scenario that is written down; playing.py
    scenarios.py  the plug-in of each protocol: scenarios, how knobs are drawn, the simulation
    sandbox.py    runs that may hang or crash, in a child process; sandboxed.py: its side

Of Majordomo are `majordomo.py`, with `knobs.py` and `majordomo_scenarios.py`, the processes
(`roles.py`: the broker; `clients.py`, `workers.py`, `intruder.py`: those who dial it), what looks
at every input and effect of their engines (`watch.py`, `watch_broker.py`), and `checkers/`: what
must hold, one class per invariant. `scalability/` has the same for the scalability protocols,
`pirate/` for the Pirates, `titanic/` for Titanic, with its store on a disk that forgets.
`rabbitmq/` is a model of RabbitMQ's queues and exchanges; `pool/` has the manager of worker pools
around it, by calls in place of AMQP, and `amqp/` has callers and responders that speak AMQP with
it. In `shells/` run whole brokers, workers, clients and pool managers, on an event loop with
virtual time.
"""

from requite.sim.run import Options, Plan, Result, draw, play, read_knobs, read_plan, run, violates

__all__ = [
    "Options",
    "Plan",
    "Result",
    "draw",
    "play",
    "read_knobs",
    "read_plan",
    "run",
    "violates",
]
