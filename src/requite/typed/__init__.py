"""Typed services: messages of Python types instead of bytes, checked at both ends.

`Service` names the methods that a worker serves, `Context` tells a method about its call, `Depends`
asks for a value that another function makes, and `raises` declares the errors of a method of a
`Protocol` class that a client binds. It requires `msgspec` (`requite[typed]`); programs that send
bytes load none of it.
"""

from requite.typed.context import Context, Middleware, Proceed
from requite.typed.depends import Depends
from requite.typed.refusals import raises
from requite.typed.service import Service

__all__ = ["Context", "Depends", "Middleware", "Proceed", "Service", "raises"]
