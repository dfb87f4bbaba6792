"""The real shells on virtual time: unchanged brokers, workers and clients in simulated processes.

    loop.py        an asyncio event loop with virtual time
    program.py     a process that runs a coroutine on such a loop, and its network
    virtual.py     the clock and the randomness that shells use during a run
    knobs.py, scenarios.py     the parameters of a run, drawn from its seed
    stage.py, cast.py          the state that all programs share, and all processes
    middle.py, workers.py, clients.py, pool.py    the programs
    simulation.py  the phases of a run, and its checkers

`requite.testing.simulate` runs users' tests on `loop.py`, `program.py` and `virtual.py`.
"""
