"""The command of an earlier version of requite and of this one, as real processes."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from tests.cli.command import Ended, Running, requite, running
from tests.support.live import ROOT

# The last commit without `requite.principal`: neither users have rights, nor records owners.
BEFORE_PRINCIPALS: Final = "bd961d532c710fce6d1ae939a3756e703452ee04"
_WITHIN_S: Final = 20.0


class Version(NamedTuple):
    """A version of requite: its name and the variables with which processes run it."""

    name: str
    env: dict[str, str]

    def requite(self, *words: str, env: dict[str, str] | None = None, **options: Any) -> Ended:
        """Run the command of this version until it exits."""
        return requite(*words, env=self.env | (env or {}), cwd=ROOT, **options)

    def running(
        self, *words: str, env: dict[str, str] | None = None
    ) -> AbstractContextManager[Running]:
        """Start the command of this version; kill it at the end of the block."""
        return running(*words, env=self.env | (env or {}), cwd=ROOT)

    def start_broker(self, *options: str) -> AbstractContextManager[Running]:
        """Start a broker of this version on a free port; see `url_of`."""
        return self.running("broker", "--bind", "tcp://127.0.0.1:0", *options)

    def start_worker(
        self, *words: str, services: str = "which", env: dict[str, str] | None = None
    ) -> AbstractContextManager[Running]:
        """Start a worker of this version with `tests.compat.served`; see `place_of`."""
        targets = [f"tests.compat.served:{name}" for name in services.split()]
        return self.running("worker", *targets, *words, env=env)

    @contextmanager
    def broker(self, *options: str) -> Iterator[tuple[Running, str]]:
        """A broker of this version and its URL, once it listens."""
        with self.start_broker(*options) as broker:
            yield broker, url_of(broker)

    @contextmanager
    def worker(
        self, *words: str, services: str = "which", env: dict[str, str] | None = None
    ) -> Iterator[Running]:
        """A worker of this version, once it serves."""
        with self.start_worker(*words, services=services, env=env) as worker:
            place_of(worker)
            yield worker

    def says(self, body: str) -> str:
        """Return the reply of a worker of this version."""
        return f"{self.name}: {body}"


class Versions(NamedTuple):
    """The earlier version and this one."""

    old: Version
    new: Version

    def __call__(self, name: str) -> Version:
        return self.old if name == "old" else self.new

    def other(self, name: str) -> Version:
        """Return the version that is not `name`."""
        return self.new if name == "old" else self.old


def url_of(broker: Running) -> str:
    """Wait until a broker listens; return its URL."""
    address = broker.line().removeprefix("listening on tcp://")
    assert address.startswith("127.0.0.1:"), broker.end()
    return f"mdp://{address}"


def place_of(worker: Running) -> str:
    """Wait until a worker serves; return its first URL."""
    line = worker.line()
    assert line.startswith("serving "), worker.end()
    return line.rpartition(" ")[2]


def extract(folder: Path) -> Path:
    """Write the sources of the earlier version to a folder; return that to import from.

    Skips the test if the history is not here.
    """
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        pytest.skip("no history here: this tree is no clone of the repository, or git is missing")
    archive = folder / "old.tar"
    command = [git, "-C", str(ROOT), "archive", "--output", str(archive), BEFORE_PRINCIPALS, "src"]
    ended = subprocess.run(command, capture_output=True, timeout=_WITHIN_S, check=False)
    if ended.returncode:
        reason = ended.stderr.decode(errors="replace").strip()
        pytest.skip(
            f"{BEFORE_PRINCIPALS[:12]} is not in this clone, which may be shallow: {reason}"
        )
    shutil.unpack_archive(archive, folder, filter="data")
    return folder / "src"


def both_versions(folder: Path) -> Versions:
    """Extract the earlier version to a folder, and return both."""
    old = {"PYTHONPATH": str(extract(folder)), "PYTHONPYCACHEPREFIX": str(folder / "bytecode")}
    return Versions(Version("old", old), Version("new", {"PYTHONPATH": str(ROOT / "src")}))
