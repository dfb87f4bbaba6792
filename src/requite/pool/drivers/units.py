"""Names of the systemd units of groups, and their environment files.

Sources: systemd.unit(5) for names and their escapes, systemd.exec(5) for `EnvironmentFile=`.

The template PREFIX@.service belongs to one pool and instance; a group is its instance with the
escaped key as name. An empty or too long key is replaced by a digest. The first line of the
environment file, a comment for systemd, holds key and version.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from requite.storage.private import create_file, make_folder

_NAME_SIZE_MAX: Final = 255
_PLAIN: Final = frozenset(b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ:_")
_DIGEST: Final = "sha256:"
_ESCAPE: Final = re.compile(rb"\\x([0-9a-f]{2})")
_SPECIAL: Final = str.maketrans({char: f"\\{char}" for char in '"\\`$'})
_FRESH_S: Final = 60.0  # age below which a file is kept: its unit may be starting


@dataclass(frozen=True, slots=True)
class GroupIdentity:
    """Key and version of a group, as its file holds them."""

    key: str
    version: str


class Units:
    """The units of one template."""

    def __init__(self, prefix: str, folder: Path) -> None:
        self._prefix: Final = prefix
        self._folder: Final = folder / prefix

    @property
    def pattern(self) -> str:
        """Pattern of all units of the template."""
        return f"{self._prefix}@*.service"

    def name_of(self, key: str) -> str:
        """Return the name of a group's unit."""
        return f"{self._prefix}@{self._instance_of(key)}.service"

    def identity_of(self, unit: str) -> GroupIdentity:
        """Return the group of a unit, from its file or else from its name."""
        instance = unit.removeprefix(f"{self._prefix}@").removesuffix(".service")
        try:
            first = self._file(instance).read_text().partition("\n")[0]
            return GroupIdentity(**json.loads(first.removeprefix("#")))
        except (OSError, ValueError, TypeError):
            return GroupIdentity(unescape(instance), "")

    def write(self, key: str, version: str, variables: Mapping[str, str]) -> None:
        """Write the file of a group; it holds the password of RabbitMQ. Raises `OSError`."""
        make_folder(self._folder)
        file = self._file(self._instance_of(key))
        fresh = file.with_suffix(".new")
        lines = [f"#{json.dumps(asdict(GroupIdentity(key, version)))}"]
        lines += [f"{name}={quoted(value)}" for name, value in variables.items()]
        with open(create_file(fresh), "w") as text:
            text.write("\n".join(lines) + "\n")
        fresh.rename(file)

    def sweep(self, units: set[str]) -> None:
        """Remove the files of groups without a unit."""
        for file in self._folder.glob("*.env"):
            unit = f"{self._prefix}@{file.name.removesuffix('.env')}.service"
            if unit not in units and time.time() - file.stat().st_mtime > _FRESH_S:
                file.unlink(missing_ok=True)

    def _instance_of(self, key: str) -> str:
        escaped = escape(key)
        size = len(f"{self._prefix}@{escaped}.service")
        if not escaped or size > _NAME_SIZE_MAX or escaped.startswith(_DIGEST):
            return _DIGEST + hashlib.sha256(key.encode()).hexdigest()
        return escaped

    def _file(self, instance: str) -> Path:
        return self._folder / f"{instance}.env"


def escape(text: str) -> str:
    """Escape a string as `systemd-escape` does."""
    out = []
    for at, byte in enumerate(text.encode()):
        if byte == ord("/"):
            out.append("-")
        elif byte in _PLAIN or (byte == ord(".") and at):
            out.append(chr(byte))
        else:
            out.append(f"\\x{byte:02x}")
    return "".join(out)


def unescape(text: str) -> str:
    """Reverse `escape`."""
    raw = text.replace("-", "/").encode()
    return _ESCAPE.sub(lambda match: bytes([int(match[1], 16)]), raw).decode(errors="replace")


def quoted(value: str) -> str:
    """Quote a value for `EnvironmentFile=`, including line breaks."""
    return f'"{value.translate(_SPECIAL)}"'
