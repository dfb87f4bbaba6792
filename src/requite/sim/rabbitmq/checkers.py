"""Check what engines send to RabbitMQ."""

from __future__ import annotations

from requite.sim.kernel.history import Checker


class NoMistakes(Checker):
    """The engines send only what AMQP allows, after any fault."""

    invariant = "manners"
    sentence = "RabbitMQ never has to close a channel for what requite does wrong"

    def protocol_error(self, who: str, text: str) -> None:
        """Report a protocol error of an engine."""
        self.violate(f"{who} makes RabbitMQ say {text}")
