"""Simulations of services that run each request once: processes die, and so does what they know.

knobs.py        what a run is made of, beside what every run around a broker is
scenarios.py    what may go wrong
disk.py         a disk that forgets what was not synced
store.py        a log of replies on it, which takes its time
workers.py      workers whose handlers stand behind a `DedupEngine`
clients.py      clients whose users repeat the calls of others
checkers.py     each key runs once (I4), and everybody gets its reply
simulation.py   all of it
"""
