"""Answers of any content: a reading within its limits, or a `ValueError`; and what is drawn."""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from math import inf, isfinite, nan
from typing import Any, Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.cli.live.readings import WORKER, figures

from requite.cli.live.broker_lines import lines_of, service_lines_of
from requite.cli.live.columns import Cell, fitting, line_of, ordered
from requite.cli.live.notices import Notices
from requite.cli.live.once import print_figures
from requite.cli.live.polling import Seen, first_figures
from requite.cli.live.service_rows import BUSIEST, SERVICES
from requite.cli.live.styles import SHOWN_LENGTH_MAX, text_of
from requite.cli.live.worker_rows import WORKERS, rows_in
from requite.metrics.figures import BrokerFigures, figures_of
from requite.protocols.majordomo.answers import COUNT_MAX, ROWS_MAX, SECONDS_MAX, TEXT_LENGTH_MAX
from requite.protocols.majordomo.reading import Reading, from_json, to_json

Path = tuple[str | int, ...]

EVIL: Final = "\x1b]0;PWNED\x07\x1b[2J\x9b2J\u202e\ud800\n"
PAIR: Final = {
    "role": "primary",
    "state": "active",
    "epoch": 3,
    "serves": True,
    "peer": "passive",
    "peer_is_silent": False,
    "heard_s_ago": 0.5,
}
BEFORE: Final = figures(pair=PAIR, refused={"overloaded": 6}, denied={"call": 2}).now
ANSWER: Final = json.loads(to_json(BEFORE))
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from([10**400, -(10**15), COUNT_MAX, COUNT_MAX + 1, 1e300, inf, nan, EVIL])
    | st.integers(0, COUNT_MAX)
    | st.floats(0, SECONDS_MAX),
    lambda inner: (
        st.lists(inner, max_size=16) | st.dictionaries(st.text(max_size=9), inner, max_size=4)
    ),
    max_leaves=20,
)


def paths_in(value: Any, path: Path = ()) -> Iterator[Path]:
    """Yield where values are in a JSON document."""
    yield path
    if isinstance(value, dict):
        for name, each in value.items():
            yield from paths_in(each, (*path, name))
    elif isinstance(value, list):
        for at, each in enumerate(value):
            yield from paths_in(each, (*path, at))


def changed(document: Any, path: Path, value: object) -> Any:
    """Return a document with another value in one place."""
    if not path:
        return value
    document = deepcopy(document)
    place = document
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return document


def numbers_of(reading: Reading) -> Iterator[int]:
    """Yield the counts of a reading."""
    yield from (value for value in reading if isinstance(value, int))
    yield from (*reading.refused.values(), *reading.denied.values())
    for service in reading.services:
        yield from (service.number, *service.tally, *service[3:6], *service[7:])


def checked(reading: Reading) -> None:
    """Check that the numbers and texts of a reading are within their limits."""
    assert all(0 <= number <= COUNT_MAX for number in numbers_of(reading))
    assert 0 <= reading.at <= SECONDS_MAX
    assert all(each.oldest_at == inf or isfinite(each.oldest_at) for each in reading.services)
    texts = [reading.broker, *reading.refused, *reading.denied]
    texts += [each.name for each in reading.services]
    assert all(isinstance(text, str) and len(text) <= TEXT_LENGTH_MAX for text in texts)
    assert reading.pair is None or reading.pair.keys() == PAIR.keys()


def drawn(found: BrokerFigures, width: int) -> list[str]:
    """Return all that `requite top` draws of a broker, in lines."""
    shown = fitting(SERVICES, width)
    rows = ordered(found.services, SERVICES, BUSIEST, is_reversed=False)
    lines = lines_of(found, "mdp://127.0.0.1:5555", width)
    lines += [line_of(row, shown) for row in rows]
    for row in rows:
        lines += service_lines_of(row, "mdp://127.0.0.1:5555", width)
    notices = Notices()
    notices.answered(Seen(found, 0.0, is_other=False, service="", workers=None))
    notices.answered(Seen(found, 0.0, is_other=True, service="", workers=None))
    return text_of([*lines, [notices.cell()]]).plain.split("\n")


# --- any value in place of each field -------------------------------------------------------------
@given(st.sampled_from(list(paths_in(ANSWER))), values, st.integers(10, 300))
@example(("pair",), [1], 80)
@example(("pair",), {}, 80)
@example(("clients",), inf, 80)
@example(("at",), 1e300, 80)
@example(("at",), 10**400, 80)
@example(("at",), SECONDS_MAX, 80)
@example(("at",), 5e-324, 80)
@example(("pending_bytes",), -(10**15), 80)
@example(("pending_bytes",), COUNT_MAX, 80)
@example(("services", 0, "accepted"), 10**400, 80)
@example(("services", 0, "number"), ANSWER["services"][1]["number"], 80)
@example(("services", 0, "oldest_s"), SECONDS_MAX, 80)
@example(("services", 0, "took", 3), COUNT_MAX, 80)
@example(("services", 0, "service"), EVIL, 80)
@example(("denied",), {EVIL: COUNT_MAX}, 80)
@example(("pair", "state"), EVIL, 80)
def test_an_answer_is_a_reading_that_can_be_drawn_or_an_error(
    path: Path, value: object, width: int
) -> None:
    document = json.dumps(changed(ANSWER, path, value)).encode()
    try:
        reading = from_json(document)
    except ValueError:
        return
    checked(reading)
    earlier = BEFORE._replace(at=0.0, refused={}, denied={})
    for found in (first_figures(reading), figures_of(earlier, reading)):
        if found is not None:
            assert all(line.isprintable() for line in drawn(found, width))


@given(st.sampled_from(list(paths_in([WORKER]))), values)
@example((0, "served"), 10**400)
@example((0, "heartbeat_ms"), inf)
@example((0, "instance"), EVIL)
def test_workers_can_be_drawn_or_are_an_error(path: Path, value: object) -> None:
    try:
        rows = rows_in(changed([WORKER], path, value), (), 1.0)
    except ValueError:
        return
    again = rows_in([WORKER], rows, 1.0)
    shown = fitting(WORKERS, 200)
    lines = [line_of(row, shown) for row in ordered([*rows, *again], WORKERS, 0, is_reversed=True)]
    assert all(line.isprintable() for line in text_of(lines).plain.split("\n"))


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        (("clients",), True, "clients is not an integer"),
        (("clients",), 1.0, "clients is not an integer"),
        (("clients",), -1, r"clients is not an integer from 0 to 2\*\*63 - 1"),
        (("at",), nan, r"at is not a number of seconds from 0 to 2\*\*53"),
        (("at",), "1", "at is not a number"),
        (("broker",), "b" * 256, "broker has 256 characters, and the maximum is 255"),
        (("draining",), 0, "draining is neither true nor false"),
        (("refused",), {"n" * 256: 1}, "a name in refused has 256 characters"),
        (("denied",), {str(n): 1 for n in range(257)}, "denied has 257 fields"),
        (("services",), [None] * (ROWS_MAX + 1), "services has 100,001 rows"),
        (("pair",), {"state": "active", "peer": None, "heard_s_ago": None}, "lacks 'role'"),
        (("services", 0, "took"), [0], "took has 1 counts instead of 16"),
    ],
)
def test_the_error_names_the_field(path: Path, value: object, expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        from_json(json.dumps(changed(ANSWER, path, value)).encode())


# --- texts of a peer ------------------------------------------------------------------------------
def test_control_characters_and_long_texts_do_not_reach_the_terminal() -> None:
    shown = text_of([[Cell(EVIL, suffix=EVIL), Cell("x" * 10_000)]]).plain
    assert shown.isprintable()
    assert "\\x1b]0;PWNED\\x07\\x1b[2J\\x9b2J\\u202e\\ud800\\n" in shown
    assert len(shown) < 2 * SHOWN_LENGTH_MAX


@pytest.mark.parametrize("as_json", [False, True])
def test_nothing_of_a_peer_is_printed_raw(
    as_json: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    found = figures(refused={EVIL: 3}, denied={EVIL: 3})
    row = found.services[0]
    row = row._replace(seen=row.seen._replace(name=EVIL))
    pair = PAIR | dict.fromkeys(("role", "state", "peer"), EVIL)
    now = found.now._replace(broker=EVIL, pair=pair)
    found = found._replace(now=now, services=(row,))
    print_figures(found, "mdp://127.0.0.1:5555", as_json=as_json)
    lines = capsys.readouterr().out.removesuffix("\n").split("\n")
    assert "PWNED" in "".join(lines)
    assert all(line.isprintable() for line in lines)
    if as_json:
        assert json.loads(lines[0])["broker"] == EVIL
