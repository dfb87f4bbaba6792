"""Bulk calls: each row of a DataFrame is a request, each reply a row.

calls.py          what users call: `call` and `call_to`
plan.py           the parameters of a call, checked on the driver and sent to every task
ids.py            request ids of rows, stable across Spark's repetitions
slots.py          the number of concurrent tasks, which share a cap or a rate
task.py           runs the calls of one task
rows.py           Arrow batches to requests, replies to columns
messages.py       columns to bodies of bytes
typed_messages.py columns to messages of a typed service, whose description is checked first
outcome.py        how a row ended
schema.py         the columns of the result
pump.py           a window of requests in flight, retries, and giving up on a dead service
rate.py           rate limit of a task
service_state.py  state of a service, shared by the tasks of a job in one process
client.py         the clients of a Python worker, shared by its tasks
consumer.py       detects that Spark has ended the task
progress.py       progress of a running job
"""
