"""`requite journal export`: the events of a journal as a file that other programs read."""

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

from requite.cli.journal.options import Directory, end, size_of
from requite.cli.options import QUIET, Logging
from requite.cli.output import say
from requite.errors import ConfigurationError
from requite.journal.reader import events

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
            help="`FILE.parquet`, `FILE.jsonl`, or `-`: JSON lines to stdout.",
        ),
    ],
    logging: Logging = QUIET,
) -> int:
    """Write the events of a journal as Parquet or JSON lines.

    One row or object per event, with the columns of the table that Spark reads
    (`format("requite")`), in no order across logs. What does not decode is in there
    as well: `reason` says why, `raw` holds its bytes (JSON: hexadecimal). A file that
    was there is replaced once the new one is complete. Parquet needs the extra `spark`.

    Exit code 1: something could not be decoded; everything else has been written.

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
        raise ConfigurationError(f"`{to}` has to end with {' or '.join(writers)}, or to be -")
    with _complete_or_not_at_all(path) as unfinished:
        count, flaws = writers[path.suffix](directory, unfinished)
    say(f"{count:,} events, {size_of(path.stat().st_size)}: {path}")
    return end(flaws)


@contextmanager
def _complete_or_not_at_all(path: Path) -> Iterator[Path]:
    """Yield where to write; give it its name only when that has ended well."""
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
