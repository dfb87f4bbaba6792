"""The service `resolve`: a name service, which everything else depends on to find each other.

    export REQUITE_NAMES=names.json
    requite worker requite.examples.names:resolve --bind flp://127.0.0.1:5555
    requite worker requite.examples.names:resolve --bind flp://127.0.0.1:5556
    requite call flp://127.0.0.1:5555,127.0.0.1:5556 "production orders"

The file named by REQUITE_NAMES holds, for each environment, the endpoints of each logical name:
`{"production": {"orders": ["tcp://10.0.0.5:5555"]}, "test": {...}}`. It is read again whenever it
has changed, so names can be added while servers run.

A request is an environment and a name; the reply has one endpoint per line, and is empty for a name
that nobody has. The answer is the same whoever gives it, so it may be asked for as often as one
likes: that is what the Freelance pattern wants (Guide, "Brokerless Reliability").
"""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Final

from requite.errors import ConfigurationError, RemoteFailure
from requite.request import Request
from requite.worker import service

VARIABLE: Final = "REQUITE_NAMES"

_log = logging.getLogger("requite.examples")

Table = dict[str, dict[str, list[str]]]


class Names:
    """The table of a file, read again when it has changed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._table: Table = {}
        self._stamp = (0, 0)

    def resolve(self, environment: str, name: str) -> list[str]:
        """Return the endpoints of a name; none for one that nobody has."""
        self._refresh()
        return self._table.get(environment, {}).get(name, [])

    def _refresh(self) -> None:
        """Read the file, if it is not the one that was read; keep the old table if that fails."""
        try:
            state = self._path.stat()
            stamp = state.st_mtime_ns, state.st_size
            if stamp != self._stamp:
                self._table = _check(json.loads(self._path.read_text(encoding="utf-8")))
                self._stamp = stamp
        except (OSError, ValueError) as error:
            if not self._table:
                raise RemoteFailure(f"there are no names yet: {self._path}: {error}") from error
            _log.warning("the former names stay, since %s cannot be read: %s", self._path, error)


def _check(table: object) -> Table:
    """Return a table as it should be. Raises `ValueError` for another one."""
    if not isinstance(table, dict):
        raise ValueError("the file holds no object with environments")
    for environment, names in table.items():
        if not isinstance(names, dict) or not all(
            isinstance(each, list) and all(isinstance(one, str) for one in each)
            for each in names.values()
        ):
            raise ValueError(f"{environment!r} holds no lists of endpoints by name")
    return table


_open: dict[str, Names] = {}


@service("resolve")
async def resolve(request: Request) -> bytes:
    """Answer with the endpoints of a name, one per line."""
    environment, _, name = request.body.decode().strip().partition(" ")
    if not name:
        raise RemoteFailure("ask for an environment and a name: production orders")
    return "\n".join(_names().resolve(environment, name)).encode()


def _names() -> Names:
    path = os.environ.get(VARIABLE)
    if not path:
        raise ConfigurationError(f"set {VARIABLE} to the file that holds the names")
    return _open.setdefault(path, Names(Path(path)))
