"""One method of a service: its function and what was read from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from requite.typed.refusals import DeclaredError
from requite.typed.signature import Signature
from requite.worker.handler import Kind

if TYPE_CHECKING:
    from requite.dedup import Dedup


@dataclass(frozen=True, slots=True)
class Method:
    """A method: its name within the service, and the service name under which it is served."""

    name: str
    address: str
    function: Callable[..., Any]
    signature: Signature
    kind: Kind
    errors: Mapping[str, DeclaredError]
    idempotent: Dedup | None
