"""The queue between Lazy Pirates and the workers of a Simple or Paranoid Pirate."""

from __future__ import annotations

from requite.queue.queue import Queue

__all__ = ["Queue"]
