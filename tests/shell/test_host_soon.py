"""The host: inputs that users defer to the end of the turn."""

from __future__ import annotations

from typing import Any

from tests.shell.fakes import LineFraming, ScriptedEngine

from requite.engine import Cancel, Deliver
from requite.shell.host import Host


def test_inputs_deferred_by_callbacks_are_fed_in_the_same_flush() -> None:
    engine = ScriptedEngine()
    heard: list[str] = []

    def deliver(token: str, _what: Any) -> None:
        heard.append(token)
        if token != "third":
            host.submit_soon(Cancel({"first": "second", "second": "third"}[token]))

    engine.script = lambda event: [Deliver(event.token, None)]
    flushes: list[None] = []
    host = Host(
        engine,
        lambda: 0.0,
        LineFraming,
        wake_at=print,
        want_flush=lambda: flushes.append(None),
        deliver=deliver,
    )
    host.submit_soon(Cancel("first"))
    assert heard == []
    host.flush()
    assert heard == ["first", "second", "third"]
    host.submit_soon(Cancel("third"))
    assert len(flushes) == 2
