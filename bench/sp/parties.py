"""The clients, services and devices: their command lines, and what is missing to run them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Final

from bench.job import Job
from bench.sp import native

Lack = Callable[[], str | None]
"""Returns None, or what is missing and how to install it."""


@dataclass(frozen=True, slots=True)
class Party:
    """A process: `command(job, python)` returns its command line, `lack()` what is missing to run
    it. One that `is_requite` is a program of requite's users, and measured in each build."""

    command: Callable[[Job, str], list[str]]
    lack: Lack
    is_requite: bool = False


def _nothing() -> str | None:
    return None


def _no_pynng() -> str | None:
    return None if find_spec("pynng") else "no module pynng: run `scripts/setup bench`"


def _module(name: str, role: str) -> Callable[[Job, str], list[str]]:
    return lambda job, python: [python, "-m", f"bench.sp.{name}", role, job.to_argument()]


def _requite(role: str) -> Party:
    return Party(_module("requite_peer", role), _nothing, is_requite=True)


def layer(role: str) -> Party:
    """Return a client or service of requite with only some of its layers."""
    return Party(_module("layer_peer", role), _nothing)


def _pynng(role: str) -> Party:
    return Party(_module("pynng_peer", role), _no_pynng)


def _nng(command: Callable[[Job], list[str]]) -> Party:
    return Party(
        lambda job, _python: [str(native.NNG_ECHO.path), *command(job)], native.NNG_ECHO.lack
    )


def _nng_call(job: Job) -> list[str]:
    what = (job.port, job.window, job.body_size_bytes, job.warm_up_s, job.seconds, job.requests)
    return ["call", *map(str, what), str(job.broker_pid), *map(str, job.worker_pids)]


ASYNC_CLIENT: Final = _requite("async-client")
CLIENT: Final = _requite("client")
WORKER: Final = _requite("worker")
DEVICE: Final = _requite("device")

NNG_CLIENT: Final = _nng(_nng_call)
NNG_SERVICE: Final = _nng(lambda job: ["serve", str(job.window)])

PYNNG_THREADS: Final = _pynng("threads")
PYNNG_TASKS: Final = _pynng("tasks")
PYNNG_CLIENT: Final = _pynng("client")
PYNNG_SERVICE: Final = _pynng("service")
PYNNG_DEVICE: Final = _pynng("device")
