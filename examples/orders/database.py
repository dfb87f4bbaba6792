"""Databases of SQLite, each in a file of this folder."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager


@contextmanager
def transaction(file: str) -> Generator[sqlite3.Connection]:
    """Open a database for one transaction, which an exception rolls back."""
    with closing(sqlite3.connect(file)) as database, database:
        yield database
