"""What `requite demo` does: real requests, real processes, and what kills them.

play.py       the run from beginning to end
faults.py     who is killed, stopped and restarted when
cast.py       the broker and the workers
processes.py  one process of them; `leash.py` sees to it that none is left behind
traffic.py    the clients and their requests
direct.py     what every answer must be
tally.py      what came back: answers per request, latencies, the verdict
screen.py     the live display
audit.py      afterwards: the pipeline over the journals of all of it
auditor.py    the process in which that runs
"""
