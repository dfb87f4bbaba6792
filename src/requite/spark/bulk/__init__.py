"""Bulk calls: each row of a DataFrame is a request, each reply a row.

calls.py     what users call: `call` and `call_to`
plan.py      what is asked for, checked on the driver and sent to every task
ids.py       the ids of rows, the same however often Spark repeats them
slots.py     how many tasks run at a time, to share a cap among them
task.py      what a task does with its batches
rows.py      Arrow batches to requests, replies to columns
pump.py      a window of requests in flight, and when to give up
client.py    the connections of a Python worker, shared by its tasks
"""
