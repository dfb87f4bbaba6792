"""Options that the verbs of `requite keys new` share, and the files that they write."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, Final

from cyclopts import Parameter, validators

from requite.errors import ConfigurationError
from requite.storage.private import FILE_MODE

CA_CERTIFICATE: Final = "ca.pem"
CA_KEY: Final = "ca.key"
_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_FILE_NAME: Final = re.compile(r"[\w:@+=][\w.:@+=-]*")

CaFolder = Annotated[
    Path,
    Parameter(metavar="DIR", help="Folder of the authority, which `requite keys new ca` made."),
]
Days = Annotated[
    int,
    Parameter(
        metavar="N",
        validator=validators.Number(gt=0, lte=36500),
        help="Let the certificate expire after N days.",
    ),
]
Out = Annotated[
    Path | None,
    Parameter(
        metavar="FILE",
        help="Write to this new file. [default: the name with `.pem`, in the authority's folder]",
    ),
]


def write_new(path: Path, data: bytes) -> None:
    """Write a new file that only its user can read. Raises `ConfigurationError` if it exists."""
    try:
        descriptor = os.open(path, _FLAGS, FILE_MODE)
    except FileExistsError:
        raise ConfigurationError(
            f"{path} exists and is never overwritten: write to another file, or remove it first"
        ) from None
    except OSError as error:
        raise ConfigurationError(f"cannot write {path}: {error.strerror}") from error
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)


def place_for(name: str, folder: Path, out: Path | None) -> Path:
    """Return the file for a certificate. Raises `ConfigurationError`."""
    if out is not None:
        return out
    if not _FILE_NAME.fullmatch(name):
        raise ConfigurationError(f"{name!r} is no name for a file; give one with --out FILE")
    return folder / f"{name}.pem"
