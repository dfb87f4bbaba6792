"""What `format("requite")` may be told when it reads, and how a mistake in it is refused."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from requite.errors import ConfigurationError
from requite.spark.schemas import SOURCE, columns_of
from requite.spark.session import PUSHDOWN_VARIABLE

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

MIB: Final = 1 << 20
PARTITION_BYTES: Final = 8 * MIB  # some 400,000 events; a task costs what reading 20,000 does

_DDL: Final[Mapping[str, str]] = columns_of(SOURCE)
NAMES: Final = tuple(_DDL)
_UNITS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_SIZE: Final = re.compile(r"(\d+) *(?:([kmg])(?:i?b)?)?", re.IGNORECASE)
_KNOWN: Final = ("path", "log", "columns", "partitionBytes", "maxBytesPerTrigger", "pushdown")


@dataclass(frozen=True)
class ReadOptions:
    """Checked options. `bytes_per_trigger` is None for "all there is"."""

    path: str
    columns: tuple[str, ...]
    partition_bytes: int
    bytes_per_trigger: int | None
    pushdown: bool


def read_options(options: Mapping[str, str]) -> ReadOptions:
    """Check the options of a read. Raises `ConfigurationError`, which names what is wrong."""
    given = {name.lower(): value for name, value in options.items()}
    unknown = sorted(given.keys() - {name.lower() for name in _KNOWN})
    if unknown:
        raise ConfigurationError(f"no option {unknown[0]!r}; there are {', '.join(_KNOWN)}")
    if given.get("log", "journal") != "journal":
        raise ConfigurationError(f"log={given['log']!r}: the only log with a table is 'journal'")
    limit = given.get("maxbytespertrigger")
    return ReadOptions(
        path=_path(given.get("path")),
        columns=_columns(given.get("columns")),
        partition_bytes=_size("partitionBytes", given.get("partitionbytes", str(PARTITION_BYTES))),
        bytes_per_trigger=None if limit is None else _size("maxBytesPerTrigger", limit),
        pushdown=_pushdown(given.get("pushdown")),
    )


def schema_of(columns: tuple[str, ...]) -> str:
    """Return the DDL of the columns."""
    return ", ".join(f"{name} {_DDL[name]}" for name in columns)


def check_schema(schema: StructType) -> tuple[str, ...]:
    """Return the columns of a schema that a reader is asked for, if the journal has them so."""
    for field in schema.fields:
        declared = _DDL.get(field.name)
        if declared is None:
            raise ConfigurationError(f"no column {field.name!r}; there are {', '.join(NAMES)}")
        if field.dataType.simpleString() != declared:
            asked = field.dataType.simpleString()
            raise ConfigurationError(f"the column {field.name} is of type {declared}, not {asked}")
    return tuple(field.name for field in schema.fields)


def _path(path: str | None) -> str:
    if not path:
        raise ConfigurationError("which journal? Name its folder: load('journal')")
    scheme, separator, rest = path.partition(":")
    if separator and scheme.lower() == "file":
        return "/" + rest.lstrip("/")
    if separator and rest.startswith("//"):
        raise ConfigurationError(f"{path}: a journal is read from a folder, not from {scheme}:")
    return os.path.abspath(path)


def _columns(text: str | None) -> tuple[str, ...]:
    if text is None:
        return NAMES
    columns = tuple(name.strip() for name in text.split(","))
    for name in columns:
        if name not in NAMES:
            raise ConfigurationError(f"no column {name!r}; there are {', '.join(NAMES)}")
    if len(set(columns)) < len(columns):
        raise ConfigurationError(f"columns={text!r} names a column twice")
    return columns


def _size(option: str, text: str) -> int:
    match = _SIZE.fullmatch(text.strip())
    size = int(match[1]) * _UNITS[(match[2] or "").lower()] if match else 0
    if size < 1:
        raise ConfigurationError(f"{option}={text!r}: a number of bytes, such as 8388608 or 8m")
    return size


def _pushdown(text: Any) -> bool:
    """Unless told, only where our own session has switched it on (`requite.spark.session`)."""
    if text is None:
        return os.environ.get(PUSHDOWN_VARIABLE) == "1"
    if str(text).lower() not in ("true", "false"):
        raise ConfigurationError(f"pushdown={text!r} is neither true nor false")
    return str(text).lower() == "true"
