"""The far end of a call: `@service` makes a handler known, `Worker` runs it for whoever asks."""

from requite.worker.handler import Handler, Service, service
from requite.worker.worker import Worker

__all__ = ["Handler", "Service", "Worker", "service"]
