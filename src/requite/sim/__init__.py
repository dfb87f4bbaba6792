"""The deterministic simulator: the real engines and framings in a world of virtual time and faults.

A seed gives a plan: the knobs, processes, calls and faults. `read_plan` reads the text of a plan. A
run is a pure function: `play(plan, options) -> Result`; `run(seed, scenario, options)` draws the
plan and plays it. A run has two phases. During faults, checkers check every call and every table.
After the faults, all pending calls must end, the tables must match the live peers, and a drain must
leave no state. The invariants I1 to I19 are those of ARCHITECTURE.md.

    scenarios.py   the plug-in of each protocol: its scenarios, how it draws knobs, its simulation
    run.py         one run, and its plan
    playing.py     plays the script of a scripted scenario

`kernel/` has what all protocols share, and knows none of them:

    drawing.py     a seed gives the knobs and faults of a run, workload.py its calls
    knobs.py       the knobs that protocols share; plan.py: a plan, and its text
    shrink.py      the smallest plan that still violates an invariant
    world.py       virtual clock and queue of events
    network.py     nodes, routes between them, dialling; medium.py: the state that routes share
    stream.py      one end of a connection; pipe.py: the bytes in flight
    process.py     a process on a node: crash, restart, freeze, power loss
    engine_process.py  a process with an engine in a `requite.shell.Host`
    party.py       the same with connections to listen at, dial or keep; hub.py: observes its engine
    program.py     a process with a coroutine on a virtual event loop (loop.py, virtual.py)
    stage.py       the state that processes share
    disk.py        a disk that loses unsynced data
    cast.py        the processes of a run, by role; faults.py, fault_injection.py: their faults
    user.py        makes the calls of a client
    history.py     the events of a run as objects; checkers/ read them
    transcript.py  the same as text; diagram.py: drawn; coverage.py: counted
    simulation.py  the phases of a run, and its result; parties.py: those of most protocols
    garbage.py     intruders; raw_bytes.py: bytes that only resemble a protocol
    script.py      scripted scenarios; stranger.py: their processes without a protocol
    sandbox.py     runs that may hang or crash, in a child process; sandboxed.py: its side

A protocol has a package of declarations: its knobs and scenarios, its processes, its checkers (one
class per invariant), and its `Simulation`. `majordomo/` is MDP, with a broker; `paired/` (a pair of
real brokers), `dedup/` and `rights/` (principals with rights and quotas) extend it. `pair/` runs
the real servers of a pair. `titanic/` runs the real Titanic on a disk that loses unsynced data.
`rabbitmq/` is a model of RabbitMQ: `amqp/` simulates callers and responders at it, and `pool/` runs
the real managers, workers and callers of worker pools. `shells/` runs the real brokers, workers,
clients, pairs, and managers at a broker.
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
