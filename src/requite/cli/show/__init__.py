"""What `requite demo` does: real requests, real processes, and what kills them.

options.py    how much happens
result.py     the verdict, printed, and the exit code
play.py       the run from beginning to end
names.py      which patterns there are; `pattern.py`, what each of them is
faults.py     who is killed, stopped and restarted when
majordomo.py  one pattern: a broker and its workers
troupe.py     others: processes of which nobody can be asked how they are
pool.py       a pool: `pool_stage.py` its processes, `groups.py` its workers, `itinerary.py` what is
              asked, `upsets.py` what goes wrong with it, `rabbitmq.py` a RabbitMQ of one's own
processes.py  one process; `leash.py` and `tether.py` see to it that none is left behind
traffic.py    the clients and their requests
direct.py     what every answer must be
tally.py      what came back: answers per request, latencies, the verdict
screen.py     the live display
audit.py      afterwards: the pipeline over the journals of all of it
auditor.py    the process in which that runs
"""
