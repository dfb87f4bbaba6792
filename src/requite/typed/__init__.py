"""Typed services: messages of Python types instead of bytes, checked at both ends.

`Service` names the methods that a worker serves, `Context` tells a method about its call, `Depends`
asks for a value that another function makes. For a `Protocol` class that a client binds, `raises`
declares the errors of a method, and `CallOptions` the options of its calls. It requires `msgspec`
(`requite[typed]`); programs that send bytes load none of it.
"""

from requite.typed.context import Context, Middleware, Proceed
from requite.typed.depends import Depends
from requite.typed.refusals import raises
from requite.typed.service import Service
from requite.typed.signature import CallOptions

__all__ = ["CallOptions", "Context", "Depends", "Middleware", "Proceed", "Service", "raises"]
