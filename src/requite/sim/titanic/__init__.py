"""Titanic in the simulator: the unchanged `Titanic`, on a disk that loses unsynced data.

    knobs.py       the parameters of a run; scenarios.py: scenarios, and drawing
    store.py       the store on a simulated disk, without a thread
    process.py     the process, killed between any two operations of the disk
    exchange.py    the broker and the services behind it, in place of Titanic's connections
    users.py       users that submit, wait and close, over a network that loses messages
    ledger.py      the acknowledged requests, and the invariants
    simulation.py  the phases of a run

Messages are not encoded here: `shells/` runs Titanic at a real broker, on the same disk.
"""
