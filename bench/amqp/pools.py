"""A pool's manager as a process, as a user starts it."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import Final, NamedTuple

from bench.amqp.turns import START_S
from requite.testing.processes import Child, Children
from requite.testing.rabbitmq import RabbitServer

DRAIN_S: Final = 60.0
_RUN: Final = ("-m", "requite.cli", "pool", "run", "--config")


class Manager(NamedTuple):
    """The process, and the URL of its endpoints."""

    child: Child
    url: str


def new_pool(name: str) -> str:
    """Return a name that no pool had: the queues of a repeated measurement remain."""
    return f"{name}-{token_hex(4)}"


def pool_url(rabbit: RabbitServer, pool: str) -> str:
    """Return the URL of a pool for callers, who pass the key as `service`."""
    return f"amqp://guest:guest@127.0.0.1:{rabbit.port}/?pool={pool}"


@contextmanager
def managing(
    rabbit: RabbitServer, pool: str, folder: Path, driver: str, run: Sequence[str] = _RUN
) -> Iterator[Manager]:
    """Run a pool manager with a driver (the lines of its section); end its groups at the end.

    Queues remain, so each measurement needs its own pool. `run` has the arguments of Python that
    start the manager; the name of the settings file follows.
    """
    config = folder / "pool.toml"
    config.write_text(_settings(rabbit, pool, driver))
    with Children() as children:
        child = children.start([sys.executable, *run, str(config)], name="the manager")
        try:
            url = child.wait_for(rf"^pool {pool} at (\S+)$", START_S)[1]
            child.wait_for(rf"^pool {pool}: active$", START_S)
            yield Manager(child, url)
        finally:
            child.end(DRAIN_S)
            _kill_workers(folder, pool)


def _settings(rabbit: RabbitServer, pool: str, driver: str) -> str:
    where = f"guest:guest@127.0.0.1:{rabbit.port}"
    api = f"http://guest:guest@127.0.0.1:{rabbit.management_port}"
    return "\n".join(
        [
            f'[pool]\nname = "{pool}"',
            f'[rabbitmq]\nurl = "amqp://{where}/"\nmanagement_url = "{api}"',
            "[lifetime]\nunbind_delay = 3600",
            "[http]\nport = 0",
            f"[driver]\n{driver}",
        ]
    )


def processes(folder: Path, command: Sequence[str]) -> str:
    """Return the driver section for workers as processes."""
    places = f"state_dir = {json.dumps(str(folder))}\nlog_dir = {json.dumps(str(folder))}"
    return f'kind = "subprocess"\ncommand = {json.dumps([*command])}\n{places}'


def _kill_workers(folder: Path, pool: str) -> None:
    """Kill the workers of a manager that was killed."""
    from requite.pool.drivers.records import Records

    for record in Records(folder / f"{pool}.default").living():
        with suppress(ProcessLookupError):
            os.killpg(record.pid, signal.SIGKILL)
