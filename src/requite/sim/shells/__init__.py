"""The real shells on virtual time: unchanged brokers, workers and clients in simulated processes.

    loop.py        an asyncio event loop whose time is the world's
    program.py     a process that runs a coroutine on such a loop, and its network
    virtual.py     the clock and the randomness that shells see meanwhile
    titanic.py     the store of a Titanic on a simulated disk
    knobs.py, scenarios.py     what a run is made of, drawn from its seed
    stage.py, cast.py          what all programs of a run share, and who takes part
    middle.py, workers.py, clients.py    the programs
    simulation.py  the phases of a run, and what its checkers are told

`requite.testing.simulate` runs the tests of users on the first three.
"""
