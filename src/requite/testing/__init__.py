"""Real processes for tests, demos and benchmarks.

processes.py  `Child`: one child process; `Children`: those of one run
rabbitmq.py   `RabbitServer`: a private RabbitMQ
lifetime.py   ends a process together with its parent, or with the holder of a lock
"""
