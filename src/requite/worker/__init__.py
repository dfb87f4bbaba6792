"""Workers: `@service` names a handler, `Worker` serves it."""

from requite.worker.handler import Handler, Service, service
from requite.worker.worker import Worker

__all__ = ["Handler", "Service", "Worker", "service"]
