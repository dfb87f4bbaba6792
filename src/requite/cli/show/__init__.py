"""`requite demo`: real processes and requests, and injected faults.

options.py      the options: how many requests, workers and faults
demos.py        the demos, described as data; `description.py` has the types
run.py          runs a demo from its description
schedule.py     when faults are injected
faults.py       faults; in `broker.py` where a broker reports figures
pool.py         RabbitMQ and a manager; `groups.py` its workers, `countries.py` its requests,
                `pool_faults.py` its faults
traffic.py      how a client makes its calls; `requests.py` numbers them
replies.py      the replies, and the verdict; `direct.py` computes the correct answers
screen.py       the display
report.py       prints the results and returns the exit code
audit.py        runs the pipeline over the journals, in the process of `auditor.py`
"""
