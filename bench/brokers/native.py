"""The broker on libzmq and the load in C: `libzmq_broker.c`, `mdp_load.c`."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

from bench.c_program import CProgram
from bench.job import Job

_FOLDER: Final = Path(__file__).parent
BROKER: Final = CProgram(_FOLDER / "libzmq_broker.c", "`gcc` and `libzmq3-dev`", library="zmq")
LOAD: Final = CProgram(_FOLDER / "mdp_load.c", "`gcc` and `libc6-dev`")


def load_command(role: Literal["client", "worker"], job: Job) -> list[str]:
    """Return the command line of the client or of the process with all workers."""
    if role == "worker":
        given: tuple[float, ...] = (job.port, job.workers, job.body_size_bytes)
    else:
        timing = (job.warm_up_s, job.seconds, job.requests)
        given = (job.port, job.window, job.body_size_bytes, *timing)
        given = (*given, job.broker_pid, *job.worker_pids)
    return [str(LOAD.path), role, *map(str, given)]
