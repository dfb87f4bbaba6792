"""Titanic in the simulator: the real engine and the real store, on a disk that loses what it may.

    knobs.py       everything a run is made of; scenarios.py: what distinguishes runs, and drawing
    disk.py        a disk that forgets what was not synced, fills up, and loses bits
    node.py        the process: engine and store, killed between any two operations of the disk
    exchange.py    the broker and the services behind it, as Titanic sees them
    users.py       those who submit, wait and close, over a network that loses what is said
    ledger.py      what was promised to whom, and what must hold
    simulation.py  the phases of a run

Messages are not bytes here: that frames survive the wire is shown where Majordomo is simulated.
"""
