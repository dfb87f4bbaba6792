"""The names under which the methods of a service are served.

Minor versions are compatible, so they share names: `orders.price`. From the second major version on
the name has it: `orders.v2.price`. So two major versions are served side by side, and callers of
the first one notice nothing.
"""

from __future__ import annotations

import re
from typing import Any, Final

from requite.errors import ConfigurationError

DESCRIBE: Final = "describe"
"""The method by which every typed service describes itself."""

_VERSION: Final = re.compile(r"(0|[1-9]\d*)(\.(0|[1-9]\d*)){0,2}")
_NAME: Final = re.compile(r"[A-Za-z_][\w-]*(\.[A-Za-z_][\w-]*)*")


def check_name(name: Any) -> None:
    """Raise `ConfigurationError` for a name that is not words, joined by dots."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigurationError(
            f"the name of a typed service is words joined by dots, not {name!r}"
        )


def prefix_of(service: str, version: Any) -> str:
    """Return what the names of the methods begin with. Raises `ConfigurationError`."""
    if not isinstance(version, str) or not _VERSION.fullmatch(version):
        raise ConfigurationError(
            f"a version is up to three numbers joined by dots ('1.2'), not {version!r}"
        )
    major = int(version.partition(".")[0])
    return service if major < 2 else f"{service}.v{major}"
