"""Read messages between engines and RabbitMQ without the code of the engines under test."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from requite.sim.kernel.transcript import show_body
from requite.sim.kernel.workload import Task, parse_task
from requite.sim.rabbitmq.server_methods import NAMES, unpack


class Words(NamedTuple):
    """A method on a channel, with its content, if any; all is empty in a heartbeat."""

    channel: bytes = b""
    method: bytes = b""
    header: bytes = b""
    body: bytes = b""

    @property
    def kind(self) -> bytes:
        """The kind of method: a constant of `requite.protocols.amqp.methods`."""
        return self.method[:4]

    @property
    def task(self) -> Task | None:
        """The task in a request; None for any other message."""
        return parse_task(unpack(self.body) or ())


def describe(message: Sequence[bytes]) -> str:
    """Describe a message in words."""
    if not message:
        return "HEARTBEAT"
    words = Words(*message)
    text = f"{int.from_bytes(words.channel, 'big')} {NAMES[words.kind]}"
    if len(message) < len(words):
        return text
    return f"{text}: {show_body(unpack(words.body) or [words.body])}"
