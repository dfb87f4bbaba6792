"""The queue between Lazy Pirate clients and Simple or Paranoid Pirate workers."""

from __future__ import annotations

from requite.queue.queue import Queue

__all__ = ["Queue"]
