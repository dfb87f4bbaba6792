"""The errors of typed services in the columns of a row."""

from __future__ import annotations

import json

from requite.errors import CallError, RemoteFailure


class Refused(RemoteFailure):
    """A declared error of a typed service: `status` is its name, `data` its fields as JSON."""

    def __init__(self, message: str, status: str, data: str, attempts: int) -> None:
        super().__init__(message, attempts=attempts)
        self.status = status
        self.data = data


def status_of(error: CallError) -> str:
    """Return the status of a row that ended with an error."""
    return error.status if isinstance(error, Refused) else type(error).__name__


def data_of(error: CallError) -> str | None:
    """Return the data of an error as JSON: of a declared one, or the place of a misfit."""
    if isinstance(error, Refused):
        return error.data
    path, reason = getattr(error, "path", None), getattr(error, "reason", None)
    if path is None:
        return None
    return json.dumps({"path": path, "reason": reason}, ensure_ascii=False)
