"""Facts of the machine that a reader needs to judge the figures, without its host name."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from importlib.metadata import PackageNotFoundError, version

from bench.contenders import nats_server

_PACKAGES = ("requite", "uvloop", "pyzmq", "majortomo", "nats-py")


def facts() -> dict[str, str]:
    """Return cores, system, and versions of the installed contenders."""
    found = {
        "cores": str(len(os.sched_getaffinity(0))),
        "system": f"{platform.system()} {platform.machine()}",
        "Python": f"{platform.python_implementation()} {platform.python_version()}",
    }
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found | _libzmq() | _nats_server()


def _libzmq() -> dict[str, str]:
    try:
        import zmq
    except ImportError:
        return {}
    return {"libzmq": zmq.zmq_version()}


def _nats_server() -> dict[str, str]:
    if (path := nats_server()) is None:
        return {}
    text = subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"\d[\w.]*", text)
    return {"nats-server": found[0]} if found else {}
