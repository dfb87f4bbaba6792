"""The real shells on virtual time: unchanged brokers, workers and clients in simulated processes.

loop.py        an asyncio event loop whose time is the world's
program.py     a process that runs a coroutine on such a loop, and its network
virtual.py     the clock and the randomness that shells see meanwhile
knobs.py, scenarios.py     what a run is made of, drawn from its seed
members.py     the processes of a run: brokers, workers, clients, and what is between them
simulation.py  the phases of a run, and what its checkers are told
"""
