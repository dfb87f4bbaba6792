"""Files and folders that only their user can read: modes 0600 and 0700, whatever the umask is."""

from __future__ import annotations

import os
import stat
from logging import Logger
from pathlib import Path
from typing import Final

from requite.errors import ConfigurationError

FILE_MODE: Final = 0o600
FOLDER_MODE: Final = 0o700
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


def make_folder(path: Path, mode: int = FOLDER_MODE) -> None:
    """Create a folder, and the missing ones above it; an existing one keeps its mode.

    Raises `FileExistsError` or `NotADirectoryError` if a file has its name.
    """
    if not path.is_dir():
        make_folder(path.parent, mode)
        path.mkdir(mode, exist_ok=True)


def create_file(path: Path, flags: int = 0, mode: int = FILE_MODE) -> int:
    """Create a file, and return its descriptor for reading and writing; `flags` as of `os.open`.

    It replaces an existing file, which may have a wider mode (one of an older version).
    """
    path.unlink(missing_ok=True)
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | flags, mode)


def is_exposed(status: os.stat_result) -> bool:
    """Whether other users may use a file that has to be secret.

    The group may read a file of another owner: such a file was mounted for this process, as systemd
    and Kubernetes do with credentials (mode 0440, owned by root).
    """
    if status.st_mode & (_OTHERS & ~stat.S_IRGRP):
        return True
    return bool(status.st_mode & stat.S_IRGRP) and status.st_uid == os.geteuid()


def warn_of_access(path: Path, logger: Logger) -> None:
    """Log a warning if group or others may use a folder that holds bodies of requests."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & _OTHERS:
        logger.warning(
            "%s holds the bodies of requests and replies, and its mode %04o lets other users in. "
            "Close it: chmod -R go= %s",
            path,
            mode,
            path,
        )


def read_private(path: Path, holds: str) -> str:
    """Return the text of a file that only its user may access; `holds` says what is in it
    ("passwords").

    Raises `ConfigurationError`, which does not quote the file.
    """
    try:
        with path.open(encoding="utf-8") as file:
            status = os.fstat(file.fileno())
            if is_exposed(status):
                mode = stat.S_IMODE(status.st_mode)
                raise ConfigurationError(
                    f"other users of this machine may use {path} (mode {mode:04o}), which has"
                    f" {holds}: run `chmod 600 {path}`, and change the {holds} if others may"
                    " have read them"
                )
            return file.read()
    except UnicodeDecodeError:
        raise ConfigurationError(f"cannot read the {holds} in {path}: it is not UTF-8") from None
    except OSError as error:
        raise ConfigurationError(f"cannot read the {holds} in {path}: {error.strerror}") from error
