"""`requite journal export`: write the events of a journal as Parquet or JSON lines."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from requite.cli.journal.options import Directory, end
from requite.cli.options import QUIET, Logging
from requite.cli.output import say
from requite.errors import ConfigurationError
from requite.journal.reader import events
from requite.story.words import size

if TYPE_CHECKING:
    from typing import TextIO


def export(
    directory: Directory,
    /,
    *,
    to: Annotated[
        str,
        Parameter(
            metavar="FILE",
            allow_leading_hyphen=True,
            help="`FILE.parquet`, `FILE.jsonl`, or `-` for JSON lines on stdout.",
        ),
    ],
    logging: Logging = QUIET,
) -> int:
    """Write the events of a journal as Parquet or JSON lines.

    One row or object per event, with the columns of the table that Spark reads
    (`format("requite")`); the logs are not merged by time. Data that cannot be
    decoded has a row as well: `reason` says why, `raw` has the bytes (JSON:
    hexadecimal). An existing file is replaced when the new one is complete.
    Parquet requires the extra `spark`.

    Exit code 1: some data could not be decoded; all other events were written.

      $ requite journal export journal --to events.parquet
      $ requite journal export journal --to - | jq -r .kind | sort | uniq -c
    """
    logging.start()
    if to == "-":
        _, flaws = _write_lines(directory, sys.stdout)
        return end(flaws)
    path = Path(to)
    writers = {".parquet": _to_parquet, ".jsonl": _to_lines}
    if path.suffix not in writers:
        raise ConfigurationError(f"--to: `{to}` must end with {' or '.join(writers)}, or be -")
    with _complete_or_not_at_all(path) as unfinished:
        count, flaws = writers[path.suffix](directory, unfinished)
    say(f"{count:,} events, {size(path.stat().st_size)}: {path}")
    return end(flaws)


@contextmanager
def _complete_or_not_at_all(path: Path) -> Iterator[Path]:
    """Yield a temporary path; rename it to `path` if the block succeeds."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield unfinished
        unfinished.replace(path)
    except OSError as error:
        raise ConfigurationError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        unfinished.unlink(missing_ok=True)


def _to_lines(directory: str, path: Path) -> tuple[int, Counter[str]]:
    with path.open("w", encoding="utf-8") as file:
        return _write_lines(directory, file)


def _write_lines(directory: str, file: TextIO) -> tuple[int, Counter[str]]:
    flaws: Counter[str] = Counter()
    count = 0
    for event in events(directory):
        count += 1
        file.write(json.dumps(event.record(), ensure_ascii=False) + "\n")
        if event.raw is not None:
            flaws[event.reason or ""] += 1
    return count, flaws


def _to_parquet(directory: str, path: Path) -> tuple[int, Counter[str]]:
    try:
        import pyarrow.parquet as parquet
    except ImportError:
        raise ConfigurationError(
            "Parquet needs pyarrow: pip install 'requite[spark]'; or export to FILE.jsonl"
        ) from None
    from requite.cli.journal.tables import flaws_of, schema, tables

    flaws: Counter[str] = Counter()
    count = 0
    with parquet.ParquetWriter(path, schema()) as writer:
        for table in tables(directory):
            writer.write_table(table)
            count += table.num_rows
            flaws.update(flaws_of(table))
    return count, flaws
