"""Print the replies and failures of calls, as bytes or as JSON."""

from __future__ import annotations

import base64
import sys
from collections.abc import Callable
from typing import Any, Protocol

from requite.cli.descriptions import facts_of
from requite.cli.failures import kind_of, sentence
from requite.cli.output import complain, say_json
from requite.errors import CallError
from requite.request import Partial, Reply


class Printer(Protocol):
    """A printer of replies and failures."""

    def partial(self, partial: Partial) -> None:
        """Print a partial reply."""

    def final(self, reply: Reply) -> None:
        """Print the final reply."""

    def failed(self, error: CallError, elapsed_s: float) -> None:
        """Print why there is no final reply."""


class BytesPrinter:
    """Writes bodies unchanged to stdout, and errors to stderr."""

    def __init__(self, *, line_by_line: bool) -> None:
        self._line_by_line = line_by_line

    def partial(self, partial: Partial) -> None:
        """See `Printer`."""
        self._write(partial.body)

    def final(self, reply: Reply) -> None:
        """See `Printer`. With `line_by_line`, print no line for an empty final reply."""
        if reply.body or not self._line_by_line:
            self._write(reply.body)

    def failed(self, error: CallError, elapsed_s: float) -> None:
        """See `Printer`."""
        told = f"; request ID {error.request_id}" if error.request_id else ""
        complain(f"{sentence(error)}{told}")

    def _write(self, body: bytes) -> None:
        out = sys.stdout.buffer
        out.write(body)
        ends_lines = self._line_by_line or sys.stdout.isatty()
        if ends_lines and not body.endswith(b"\n"):
            out.write(b"\n")
        out.flush()


class JsonPrinter:
    """Prints an object per reply; the last line is the final reply or the error.

    `shown` returns the members of the object that show the body of a reply, given the attempts of
    the call, too; without it, they are text or base64.
    """

    def __init__(self, shown: Callable[[bytes, int], dict[str, Any]] | None = None) -> None:
        self._shown = shown or (lambda body, _attempts: encode_body(body))

    def partial(self, partial: Partial) -> None:
        """See `Printer`."""
        say_json({"status": "PARTIAL", "index": partial.index, **self._shown(partial.body, 1)})

    def final(self, reply: Reply) -> None:
        """See `Printer`."""
        effort = _effort(reply.attempts, reply.elapsed)
        say_json({"status": reply.status.name, **self._shown(reply.body, reply.attempts), **effort})

    def failed(self, error: CallError, elapsed_s: float) -> None:
        """See `Printer`."""
        failure = {
            "status": kind_of(error).name,
            "message": str(error),
            "may_have_executed": error.may_have_executed,
            **({"request_id": error.request_id} if error.request_id else {}),
        }
        say_json(failure | facts_of(error) | _effort(error.attempts, elapsed_s))


def _effort(attempts: int, elapsed_s: float) -> dict[str, Any]:
    return {"attempts": attempts, "elapsed_ms": round(elapsed_s * 1000, 3)}


def encode_body(body: bytes) -> dict[str, str]:
    """Return a body for JSON: text if it is UTF-8, otherwise base64."""
    try:
        return {"body": body.decode(), "encoding": "utf-8"}
    except UnicodeDecodeError:
        return {"body": base64.b64encode(body).decode(), "encoding": "base64"}
