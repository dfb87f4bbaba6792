"""Workers: `@service` names a handler, `Worker` serves it."""

from requite.worker.handler import Group, Handler, Service, service
from requite.worker.worker import Worker

__all__ = ["Group", "Handler", "Service", "Worker", "service"]
