"""Drivers: start and stop the workers of a group, one driver per platform.

    base.py         the interface of drivers
    choice.py       makes the driver that a configuration names
    noop.py         workers are started by hand
    subprocesses.py processes of this machine; records.py finds them after a restart
    docker.py       containers, over the Engine API
    kubernetes.py   a Deployment per group; manifests.py makes the objects
    systemd.py      instances of a template unit, over D-Bus; units.py names them
    web.py          HTTP client of docker.py, kubernetes.py and the management API

Every driver passes the suite in `tests/pool/drivers/conformance.py`.
"""
