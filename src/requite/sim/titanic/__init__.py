"""Titanic in the simulator: the real engine and the real store, on a disk that loses unsynced data.

    knobs.py       the parameters of a run; scenarios.py: scenarios, and drawing
    disk.py        a disk that loses unsynced data, fills up, and flips bits
    node.py        the process: engine and store, killed between any two operations of the disk
    exchange.py    the broker and the services behind it, as Titanic sees them
    users.py       users that submit, wait and close, over a network that loses messages
    ledger.py      the acknowledged requests, and the invariants
    simulation.py  the phases of a run

Messages are not encoded here: the simulation of Majordomo covers the wire.
"""
