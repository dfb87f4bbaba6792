"""Bulk calls: each row of a DataFrame is a request, each reply a row.

calls.py     what users call: `call` and `call_to`
plan.py      what is asked for, checked on the driver and sent to every task
ids.py       the ids of rows, the same however often Spark repeats them
slots.py     how many tasks run at a time, to share a cap or a rate
task.py      what a task does with its batches
rows.py      Arrow batches to requests, replies to columns
pump.py      a window of requests in flight, retries, and when to give up
rate.py      how fast a task may send
standing.py  what tasks of a job have found out, for those after them
client.py    the connections of a Python worker, shared by its tasks
consumer.py  whether Spark still wants the rows
progress.py  how far a job is, while it runs
"""
