"""Message diagrams: lanes, arrows and truncation."""

from __future__ import annotations

import pytest

from requite.sim import Options, run
from requite.sim.kernel.diagram import diagram
from requite.sim.kernel.transcript import RUN, Entry
from requite.sim.scenarios import GROUPS


def message(at_s: float, source: str, sink: str, text: str) -> Entry:
    """Return the entry of a message."""
    return Entry(at_s, source, sink, text, text)


def event(at_s: float, source: str, what: str) -> Entry:
    """Return the entry of a process event."""
    return Entry(at_s, source, "", f"{source} {what}", what)


def test_each_process_has_a_lane_and_each_message_an_arrow() -> None:
    assert [
        *diagram(
            [
                event(0.0, "worker-1", "starts"),
                message(0.0031, "client-1", "broker", "REQUEST: hello"),
                message(0.0041, "broker", "worker-1", "REQUEST 1: hello"),
                message(0.5, "worker-1", "broker", "FINAL 1 OK: world"),
                message(1.0, "worker-1", "client-1", "past the broker"),
                event(1.0, RUN, "all faults heal"),
            ]
        )
    ] == [
        "  seconds  client-1   broker   worker-1",
        "   0.0000      │         │         ●      starts",
        "   0.0031      ├────────►│         │      REQUEST: hello",
        "   0.0041      │         ├────────►│      REQUEST 1: hello",
        "   0.5000      │         │◄────────┤      FINAL 1 OK: world",
        "   1.0000      │◄──────────────────┤      past the broker",
        "   1.0000      │         │         │      all faults heal",
    ]


def test_a_message_to_oneself_is_a_point() -> None:
    *_, line = diagram([message(0.0, "a", "a", "hello")])
    assert line == "   0.0000  ●   hello"


def test_long_texts_are_cut() -> None:
    *_, line = diagram([event(0.0, "broker", "x" * 500)])
    assert len(line) == 120
    assert line.endswith("x…")


def test_many_processes_get_no_lanes() -> None:
    entries = [event(0.0, f"process-{number}", "starts") for number in range(9)]
    assert [*diagram(entries)] == [str(entry) for entry in entries]


def test_an_empty_transcript_is_a_heading_only() -> None:
    assert [*diagram([])] == ["  seconds"]


@pytest.mark.parametrize("group", sorted(GROUPS.keys() - {"all"}))
def test_runs_of_each_protocol_can_be_drawn(group: str) -> None:
    result = run(3, GROUPS[group][0], Options(transcript=True))
    assert len(result.diagram) >= len(result.transcript)
