"""Users and their rights: the access file (`access.toml`), and passwords.

`Access` is the table of users of a listener:

    access = Access.read("access.toml")
    broker = requite.Broker("tls://0.0.0.0:5555", access=access)

A hook of yours may refuse peers that the file admits (`requite.access.authenticator`). See
docs/reference/access.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from requite.access.authentication import Authentication, AuthenticationUnavailable

if TYPE_CHECKING:
    from requite.access.table import Access, Decision

__all__ = ["Access", "Authentication", "AuthenticationUnavailable", "Decision"]


def __getattr__(name: str) -> Any:
    """Load the table of users on first use (PEP 562): clients have none."""
    if name not in ("Access", "Decision"):
        raise AttributeError(f"module 'requite.access' has no attribute {name!r}")
    from requite.access import table

    value = globals()[name] = getattr(table, name)
    return value
