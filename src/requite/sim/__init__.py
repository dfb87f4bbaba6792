"""The deterministic simulator: the real engines and framings in a world of virtual time and faults.

A seed gives a plan: the knobs, processes, calls and faults. `read_plan` reads the text of a plan. A
run is a pure function: `play(plan, options) -> Result`; `run(seed, scenario, options)` draws the
plan and plays it. A run has two phases. During faults, checkers check every call and every table.
After the faults, all pending calls must end, the tables must match the live peers, and a drain must
leave no state. The invariants I1 to I15 are those of ARCHITECTURE.md.

    seed ──scenarios.py──► Knobs ──workload.py, faults.py──► Plan: all calls and faults
    plan.py       a plan, and its text
    shrink.py     the smallest plan that still violates an invariant
    world.py      virtual clock and queue of events
    network.py    nodes, routes between them, dialling; medium.py: the state that routes share
    stream.py     one end of a connection; pipe.py: the bytes in flight
    process.py    a process on a node: crash, restart, freeze, power loss;
                  engine_process.py: with an engine in a `requite.shell.Host`
    user.py       makes the calls of a client
    fault_injection.py    injects faults, which are drawn by faults.py
    history.py    the events of a run as objects; transcript.py: as text; diagram.py: drawn;
                  coverage.py: counted
    simulation.py the phases of a run, and its result; run.py: one run, and its plan
    script.py     scripted scenarios; playing.py: plays them
    scenarios.py  the plug-in of each protocol: scenarios, how knobs are drawn, the simulation
    sandbox.py    runs that may hang or crash, in a child process; sandboxed.py: its side

Majordomo has `majordomo.py`, `knobs.py`, `majordomo_scenarios.py`, the processes (`roles.py`: the
broker; `clients.py`, `workers.py`, `intruder.py`: its peers), the observers of their engines
(`watch.py`, `watch_broker.py`), and `checkers/`, with one class per invariant. `scalability/` has
the same for the scalability protocols, `pirate/` for the Pirates, `titanic/` for Titanic, with its
store on a disk that loses unsynced data. `rabbitmq/` is a model of RabbitMQ's queues and exchanges.
`pool/` simulates the manager of worker pools with this model, by calls instead of AMQP; `amqp/`
simulates callers and responders that speak AMQP with it. `shells/` runs whole brokers, workers,
clients and pool managers on an event loop with virtual time.
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
