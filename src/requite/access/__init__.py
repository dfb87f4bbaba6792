"""Users and their rights: the access file (`access.toml`), and passwords.

`Access` is the table of users of a listener:

    access = Access.read("access.toml")
    broker = requite.Broker("tls://0.0.0.0:5555", access=access)

A hook of yours may refuse peers that the file admits (`requite.access.authenticator`). See
docs/reference/access.md.
"""

from __future__ import annotations

from requite.access.authentication import Authentication, AuthenticationUnavailable
from requite.access.table import Access, Decision

__all__ = ["Access", "Authentication", "AuthenticationUnavailable", "Decision"]
