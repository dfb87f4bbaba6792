"""What a URL stands for, on both sides: one file per protocol, and a registry by scheme.

A file has the protocol's `SCHEMES`, checks its URLs (`check_url`), and says which engine and
which connections make a client (`client_plan`) and a worker (`service_plans`) of it. Engines are
imported by the plan that needs them, so that a client loads no worker.
"""
