"""The service `resolve`: a name service, which other services use to find each other.

    export REQUITE_NAMES=names.json
    requite worker requite.examples.names:resolve --bind flp://127.0.0.1:5555
    requite worker requite.examples.names:resolve --bind flp://127.0.0.1:5556
    requite call flp://127.0.0.1:5555,127.0.0.1:5556 "production orders"

The file named by REQUITE_NAMES holds, for each environment, the endpoints of each logical name:
`{"production": {"orders": ["tcp://10.0.0.5:5555"]}, "test": {...}}`. The servers reload the file
when it changes.

A request is an environment and a name. The reply has one endpoint per line, and is empty for an
unknown name. All servers give the same reply, so requests are idempotent, as the Freelance pattern
requires (Guide, "Brokerless Reliability").
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
    """The table of a file; reloads the file when it changes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._table: Table = {}
        self._stamp = (0, 0)

    def resolve(self, environment: str, name: str) -> list[str]:
        """Return the endpoints of a name; an empty list for an unknown name."""
        self._refresh()
        return self._table.get(environment, {}).get(name, [])

    def _refresh(self) -> None:
        """Reload the file if it changed; keep the old table if that fails."""
        try:
            state = self._path.stat()
            stamp = state.st_mtime_ns, state.st_size
            if stamp != self._stamp:
                self._table = _check(json.loads(self._path.read_text(encoding="utf-8")))
                self._stamp = stamp
        except (OSError, ValueError) as error:
            if not self._table:
                raise RemoteFailure(
                    f"no names are loaded, because {self._path} cannot be read: {error}"
                ) from error
            _log.warning(
                "cannot read %s: %s; the previously loaded names remain in use", self._path, error
            )


def _check(table: object) -> Table:
    """Return a valid table. Raises `ValueError`."""
    if not isinstance(table, dict):
        raise ValueError("the file is not a JSON object of environments")
    for environment, names in table.items():
        if not isinstance(names, dict) or not all(
            isinstance(each, list) and all(isinstance(one, str) for one in each)
            for each in names.values()
        ):
            raise ValueError(f"{environment!r} is not an object of lists of endpoints")
    return table


_open: dict[str, Names] = {}


@service("resolve")
async def resolve(request: Request) -> bytes:
    """Reply with the endpoints of a name, one per line."""
    environment, _, name = request.body.decode().strip().partition(" ")
    if not name:
        raise RemoteFailure(
            "the request must have the form ENVIRONMENT NAME, such as `production orders`"
        )
    return "\n".join(_names().resolve(environment, name)).encode()


def _names() -> Names:
    path = os.environ.get(VARIABLE)
    if not path:
        raise ConfigurationError(f"set {VARIABLE} to the path of the file with the names")
    return _open.setdefault(path, Names(Path(path)))
