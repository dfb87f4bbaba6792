"""Users and their rights: the access file (`access.toml`), and passwords.

`Access` is the table of users of a listener:

    access = Access.read("access.toml")
    broker = requite.Broker("tls://0.0.0.0:5555", access=access)

See docs/reference/access.md.
"""

from __future__ import annotations

from requite.access.table import Access, Decision

__all__ = ["Access", "Decision"]
