"""Log lines of the command, on stderr, as text or JSON.

requite logs to the logger `requite` of the standard library. The fields of `extra=` follow the text
as `key=value`, or are members of the JSON object. Passwords of URLs are not shown. Without -v only
warnings and errors are shown.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from textwrap import indent
from typing import Any, Final, Literal

from requite.cli.output import printable, printable_lines
from requite.speaks.url import redact_text
from requite.trace_context import trace_id
from requite.tracing.api import current_trace

LogFormat = Literal["text", "json"]

_LEVELS: Final = (logging.WARNING, logging.INFO, logging.DEBUG)
_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def start_logging(verbose: int, log_format: LogFormat) -> None:
    """Log to stderr: warnings, with `verbose` 1 also INFO, with 2 also DEBUG."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if log_format == "json" else TextLines())
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logging.getLogger("requite").setLevel(_LEVELS[min(verbose, len(_LEVELS) - 1)])


class TextLines(logging.Formatter):
    """`10:13:38.123 warning requite.shell: text key=value`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, followed by the traceback of an exception."""
        time = _instant(record).astimezone().strftime("%H:%M:%S.%f")[:-3]
        facts = "".join(f" {name}={value!r}" for name, value in _facts(record).items())
        text = printable(record.getMessage())
        line = f"{time} {record.levelname.lower()} {record.name}: {text}{facts}"
        if record.exc_info:
            # Indented, so that an exception's text cannot pass for a log line.
            trace = printable_lines(self.formatException(record.exc_info))
            line = f"{line}\n{indent(trace, '  ')}"
        return redact_text(line)


class JsonLines(logging.Formatter):
    """One object per line: `time` (UTC), `level`, `logger`, `message`, fields of `extra=`, and
    `trace_id` of the request that is handled, or of another current span of OpenTelemetry."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        entry: dict[str, Any] = {
            "time": _instant(record).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        facts = _facts(record)
        if trace := current_trace():
            facts.setdefault("trace_id", trace_id(trace))
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        # JSON has a blank between two strings, so no match reaches from one into the next.
        return redact_text(json.dumps(facts | entry, default=str, ensure_ascii=False))


def _instant(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, UTC)


def _facts(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in vars(record).items() if name not in _STANDARD}
