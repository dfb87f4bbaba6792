"""The options of `format("requite")` for reading, and their checks."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from requite.errors import ConfigurationError
from requite.spark.schemas import SOURCE, TITANIC, columns_of
from requite.spark.session import PUSHDOWN_VARIABLE
from requite.storage.place import local_folder, place_of

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

MIB: Final = 1 << 20
PARTITION_BYTES: Final = 8 * MIB  # some 400,000 events; a task costs as much as reading 20,000

JOURNAL: Final = "journal"
TITANIC_LOG: Final = "titanic"
_TABLES: Final[Mapping[str, Mapping[str, str]]] = {
    JOURNAL: columns_of(SOURCE),
    TITANIC_LOG: columns_of(TITANIC),
}
_UNITS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_SIZE: Final = re.compile(r"(\d+) *(?:([kmg])(?:i?b)?)?", re.IGNORECASE)
_KNOWN: Final = ("path", "log", "columns", "partitionBytes", "maxBytesPerTrigger", "pushdown")


@dataclass(frozen=True)
class ReadOptions:
    """Checked options. `bytes_per_trigger` None: no limit."""

    log: str
    path: str
    columns: tuple[str, ...]
    partition_bytes: int
    bytes_per_trigger: int | None
    pushdown: bool

    @property
    def ddl(self) -> Mapping[str, str]:
        """The types of all columns of the table, by name."""
        return _TABLES[self.log]

    @property
    def types(self) -> dict[str, Any]:
        """The Arrow types of all columns, by name."""
        from requite.spark.decoding.columns import arrow_types

        return arrow_types(", ".join(f"{name} {kind}" for name, kind in self.ddl.items()))


def read_options(options: Mapping[str, str]) -> ReadOptions:
    """Check the options of a read. Raises `ConfigurationError`, which names the invalid one."""
    given = {name.lower(): value for name, value in options.items()}
    unknown = sorted(given.keys() - {name.lower() for name in _KNOWN})
    if unknown:
        raise ConfigurationError(
            f"unknown option {unknown[0]!r}; the options are {', '.join(_KNOWN)}"
        )
    log = given.get("log", JOURNAL)
    if log not in _TABLES:
        raise ConfigurationError(f"log={log!r}: must be one of {', '.join(_TABLES)}")
    limit = given.get("maxbytespertrigger")
    return ReadOptions(
        log=log,
        path=_path(given.get("path"), log),
        columns=_columns(given.get("columns"), tuple(_TABLES[log])),
        partition_bytes=_size("partitionBytes", given.get("partitionbytes", str(PARTITION_BYTES))),
        bytes_per_trigger=None if limit is None else _size("maxBytesPerTrigger", limit),
        pushdown=_pushdown(given.get("pushdown")),
    )


def schema_of(options: ReadOptions) -> str:
    """Return the DDL of the selected columns."""
    return ", ".join(f"{name} {options.ddl[name]}" for name in options.columns)


def check_schema(schema: StructType, options: ReadOptions) -> tuple[str, ...]:
    """Return the columns of a schema; raise `ConfigurationError` unless the table has them."""
    for field in schema.fields:
        declared = options.ddl.get(field.name)
        if declared is None:
            names = ", ".join(options.ddl)
            raise ConfigurationError(f"no column {field.name!r}; the columns are {names}")
        if field.dataType.simpleString() != declared:
            asked = field.dataType.simpleString()
            raise ConfigurationError(f"the column {field.name} is of type {declared}, not {asked}")
    return tuple(field.name for field in schema.fields)


def _path(path: str | None, log: str) -> str:
    if not path:
        what, example = ("journal", "journal") if log == JOURNAL else ("store", "requests")
        raise ConfigurationError(f"the {what} is missing: pass its folder, as in load('{example}')")
    if log == JOURNAL:
        return place_of(path, "a journal is read from")
    return str(local_folder(path, f"a {log} is read from"))


def _columns(text: str | None, names: tuple[str, ...]) -> tuple[str, ...]:
    if text is None:
        return names
    columns = tuple(name.strip() for name in text.split(","))
    for name in columns:
        if name not in names:
            raise ConfigurationError(f"no column {name!r}; the columns are {', '.join(names)}")
    if len(set(columns)) < len(columns):
        raise ConfigurationError(f"columns={text!r} names a column twice")
    return columns


def _size(option: str, text: str) -> int:
    match = _SIZE.fullmatch(text.strip())
    size = int(match[1]) * _UNITS[(match[2] or "").lower()] if match else 0
    if size < 1:
        raise ConfigurationError(
            f"{option}={text!r}: must be a number of bytes, such as 8388608 or 8m"
        )
    return size


def _pushdown(text: Any) -> bool:
    """Parse the option; by default, true if `requite.spark.session` created the session."""
    if text is None:
        return os.environ.get(PUSHDOWN_VARIABLE) == "1"
    if str(text).lower() not in ("true", "false"):
        raise ConfigurationError(f"pushdown={text!r} must be true or false")
    return str(text).lower() == "true"
