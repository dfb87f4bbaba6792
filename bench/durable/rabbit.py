"""A RabbitMQ of the bench's own: on free ports of the loopback, with its data in a folder."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import ClassVar

from requite.cli.show import rabbitmq
from requite.cli.show.processes import ShowFailed


def lack() -> str | None:
    """Return what is missing, if anything."""
    missing = rabbitmq.lack()
    return missing and f"no {missing}: apt-get install rabbitmq-server"


class Rabbit(rabbitmq.RabbitServer):
    """The server; leaving the `with` block ends it, and the port mapper of Erlang with it.

    With `management`, its management API answers at `management_port`, and takes figures as often
    as RabbitMQ does by itself.
    """

    FIGURES_MS: ClassVar[int] = 5000

    def __init__(self, folder: Path, *, management: bool = False) -> None:
        super().__init__(folder, management=management)

    def __enter__(self) -> Rabbit:
        try:
            self.start()
        except ShowFailed:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
