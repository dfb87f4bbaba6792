"""What starts and stops the workers of a group: one driver per kind of place where workers run.

    base.py         the contract that every driver keeps, and its nouns
    choice.py       which driver a configuration names
    noop.py         workers are started by hand
    subprocesses.py processes of this machine; records.py finds them again after a restart
    docker.py       containers, over the Engine API
    kubernetes.py   a Deployment per group; manifests.py says what is asked for
    systemd.py      instances of a template unit, over D-Bus; units.py names them
    web.py          the HTTP that docker and kubernetes have in common

`tests/pool/drivers/conformance.py` is the suite that each of them passes.
"""
