"""What tables, the lines above them, and JSON say about figures."""

from __future__ import annotations

import json
from math import nan

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cli.live.readings import WORKER, figures

from requite.cli.live.broker_lines import Line, lines_of, service_lines_of
from requite.cli.live.columns import GAP, Tone, fitting, line_of, ordered, titles
from requite.cli.live.polling import first_figures
from requite.cli.live.record import record_of
from requite.cli.live.service_rows import BUSIEST, SERVICES
from requite.cli.live.worker_rows import WORKERS, rows_in

TITLES = [column.title for column in SERVICES]


def text(line: Line) -> str:
    return "".join(cell.text + cell.suffix for cell in line)


def cells(name: str, width: int = 200) -> dict[str, tuple[str, Tone]]:
    """Return the cells of a service by title."""
    [row] = [row for row in figures().services if row.seen.name == name]
    shown = fitting(SERVICES, width)
    line = line_of(row, shown)
    return {
        column.title: (cell.text.strip(), cell.tone)
        for (column, _), cell in zip(shown, line, strict=True)
    }


# --- columns --------------------------------------------------------------------------------------
@given(st.integers(1, 300))
def test_columns_never_exceed_the_width_and_keep_the_name(width: int) -> None:
    shown = fitting(SERVICES, width)
    assert shown[0][0].title == "SERVICE"
    assert sum(each + GAP for _, each in shown) <= max(width, 2)
    assert [column.title for column, _ in shown] == [
        title for title in TITLES if title in [column.title for column, _ in shown]
    ]


def test_the_less_important_columns_are_left_out_first() -> None:
    narrow = [column.title for column, _ in fitting(SERVICES, 79)]
    assert narrow == [
        *("SERVICE", "WORKERS", "QUEUED", "OLDEST", "RUNNING", "REQ/S", "P50", "P99", "FAIL/S"),
    ]
    assert [column.title for column, _ in fitting(SERVICES, 200)] == TITLES


@pytest.mark.parametrize(
    ("title", "is_reversed", "names"),
    [
        ("REQ/S", False, ["orders", "nobody", "idle"]),
        ("REQ/S", True, ["idle", "nobody", "orders"]),
        ("SERVICE", False, ["idle", "nobody", "orders"]),
        ("SERVICE", True, ["orders", "nobody", "idle"]),
        ("P99", False, ["orders", "idle", "nobody"]),
        ("P99", True, ["orders", "idle", "nobody"]),  # those that are not known stay last
        ("WORKERS", False, ["idle", "orders", "nobody"]),
    ],
)
def test_rows_are_ordered_by_a_column(title: str, is_reversed: bool, names: list[str]) -> None:
    rows = ordered(figures().services, SERVICES, TITLES.index(title), is_reversed=is_reversed)
    assert [row.seen.name for row in rows] == names


def test_an_arrow_shows_the_order() -> None:
    shown = fitting(SERVICES, 120)
    assert "▼REQ/S" in text(titles(shown, "REQ/S", is_reversed=False))
    assert "▲REQ/S" in text(titles(shown, "REQ/S", is_reversed=True))
    assert "SERVICE▲" in text(titles(shown, "SERVICE", is_reversed=False))
    assert "▼WORKERS" in text(titles(shown, "WORKERS", is_reversed=False))


def test_titles_and_rows_are_aligned() -> None:
    shown = fitting(SERVICES, 100)
    heading = titles(shown, "REQ/S", is_reversed=False)
    line = line_of(figures().services[0], shown)
    assert [len(cell.text) for cell in heading] == [len(cell.text) for cell in line]


# --- rows -----------------------------------------------------------------------------------------
def test_a_service_that_answers_and_fails() -> None:
    found = cells("orders")
    assert found["WORKERS"] == ("1", Tone.PLAIN)
    assert (found["IDLE"][0], found["BUSY"][0]) == ("0", "1")
    assert (found["RUNNING"][0], found["QUEUED"]) == ("3", ("0", Tone.QUIET))
    assert (found["REQ/S"][0], found["OUT/S"][0]) == ("4.0", "200 B")
    assert found["IN/S"][0] == "2.0 KiB"
    assert found["P99"][0].endswith(" ms")
    assert found["FAIL/S"] == ("0.5", Tone.ERROR)
    assert found["FAILED AS"] == ("failed 0.5", Tone.ERROR)
    assert found["OLDEST"] == ("–", Tone.QUIET)


def test_a_service_without_workers_stands_out() -> None:
    found = cells("nobody")
    assert (found["QUEUED"], found["WORKERS"]) == (("1", Tone.ERROR), ("0", Tone.ERROR))
    assert found["OLDEST"] == ("2.0 s", Tone.WARNING)
    assert found["P50"] == ("–", Tone.QUIET)


def test_a_paused_service_says_so_in_any_width() -> None:
    [row] = [row for row in figures().services if row.seen.name == "orders"]
    paused = row._replace(seen=row.seen._replace(paused=1, name="a" * 60))
    name = line_of(paused, fitting(SERVICES, 60))[0]
    assert name.text.rstrip().endswith("… (paused)")
    assert name.tone is Tone.WARNING


def test_workers_have_rates_from_the_second_answer_on() -> None:
    [first] = rows_in([WORKER], (), nan)
    [again, new] = rows_in(
        [WORKER | {"served": 1500, "holding": 0}, WORKER | {"worker": "bb", "draining": True}],
        [first],
        2.0,
    )
    assert (first.state, again.state, new.state) == ("busy", "idle", "draining")
    assert (first.served_per_s != first.served_per_s, again.served_per_s) == (True, 250)
    line = text(line_of(again, fitting(WORKERS, 200)))
    assert " ".join(line.split()) == "3ea1 ann idle 0 16 1,500 250 2.0 s 0.3 00aa"


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({}, "the answer is not an array"),
        ([{}], "lacks 'worker'"),
        ([1], "a worker is not an object"),
        ([{**WORKER, "served": None}], "served is not an integer"),
    ],
)
def test_workers_that_cannot_be_read_are_an_error(answer: object, expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        rows_in(answer, (), 1.0)


# --- lines ----------------------------------------------------------------------------------------
def test_the_lines_fit_into_80_columns() -> None:
    lines = [text(line) for line in lines_of(figures(), "mdp://127.0.0.1:5555", 80)]
    assert lines[0] == " mdp://127.0.0.1:5555  serving"
    assert lines[1].split() == ["clients", "1", "workers", "2", "services", "3", "pending", "4"]
    assert lines[2].split()[:4] == ["requests/s", "4.5", "replies/s", "2.0"]
    assert "failed/s   failed 0.5" in lines[4]
    assert max(map(len, lines)) <= 80


def test_a_wide_display_has_fewer_lines() -> None:
    assert len(lines_of(figures(), "x", 200)) == len(lines_of(figures(), "x", 80)) - 1


def test_refused_and_denied_are_named() -> None:
    found = figures(refused={"overloaded": 6}, denied={"call": 2})
    line = text(lines_of(found, "x", 80)[-1])
    assert "refused/s  overloaded 3.0" in line
    assert "denied/s   call 1.0" in line


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"draining": True}, "draining"),
        ({"pair": {"role": "backup", "state": "active", "peer": "passive"}}, "primary is passive"),
        ({"pair": {"role": "primary", "state": "active", "peer": None}}, "has not been heard"),
        (
            {"pair": {"role": "primary", "state": "active", "peer": "x", "peer_is_silent": True}},
            "primary of a pair, active; the backup is silent",
        ),
    ],
)
def test_the_state_of_the_broker_is_in_the_first_line(
    changes: dict[str, object], expected: str
) -> None:
    assert expected in text(lines_of(figures(**changes), "x", 80)[0])


def test_a_lost_broker_does_not_seem_to_serve() -> None:
    line = text(lines_of(figures(), "x", 80, is_lost=True)[0])
    assert "does not answer" in line
    assert "serving" not in line


@pytest.mark.parametrize(
    ("used", "expected", "tone"),
    [
        (0, "(0%)", Tone.QUIET),
        (1, "(<1%)", Tone.GOOD),
        (900, "(90%)", Tone.WARNING),
        (1200, "(120%)", Tone.ERROR),
    ],
)
def test_memory_stands_out_as_it_fills(used: int, expected: str, tone: Tone) -> None:
    found = figures(pending_bytes=used, pending_bytes_max=1000)
    line = lines_of(found, "x", 80)[3]
    assert expected in text(line)
    bar = [cell.tone for cell in line if set(cell.text) <= {"━", "─"} and cell.text]
    assert bar[0] is tone


def test_clients_that_are_not_read_from_are_counted() -> None:
    assert "2 clients not read from" in text(lines_of(figures(unread=2), "x", 80)[3])


def test_a_service_has_lines_of_its_own() -> None:
    [row] = [row for row in figures().services if row.seen.name == "orders"]
    lines = [text(line) for line in service_lines_of(row, "mdp://x", 80)]
    assert lines[0] == " mdp://x  service orders  1 busy"
    assert lines[3].strip() == "bodies     2.0 KiB/s in, 200 B/s out"
    assert "redelivered/s 0" in lines[4]
    assert max(map(len, lines)) <= 80


def test_a_name_cannot_bring_control_characters() -> None:
    [row] = [row for row in figures().services if row.seen.name == "orders"]
    evil = row._replace(seen=row.seen._replace(name="[red]\x1b[2J\n"))
    line = text(service_lines_of(evil, "x", 80)[0])
    assert "[red]\\x1b[2J\\n" in line
    assert line.isprintable()


# --- a single reading, and JSON -------------------------------------------------------------------
def test_a_single_reading_has_no_rates() -> None:
    found = first_figures(figures().now)
    lines = [text(line) for line in lines_of(found, "x", 80)]
    assert lines[1].split()[1] == "1"
    assert lines[2].split() == ["requests/s", "–", "replies/s", "–", "p50", "–", "p99", "–"]
    assert lines[4].split() == ["failed/s", "–", "refused/s", "–", "denied/s", "–"]


def test_json_has_the_figures_and_null_for_what_is_not_known() -> None:
    record = json.loads(json.dumps(record_of(figures()), allow_nan=False))
    assert (record["interval_s"], record["requests_per_s"]) == (2, 4.5)
    orders, idle, nobody = sorted(record["services"], key=lambda each: -each["requests_per_s"])[:3]
    assert orders["failed_per_s"] == {"failed": 0.5}
    assert (orders["service"], orders["busy"], orders["reply_bytes_per_s"]) == ("orders", 1, 200)
    assert {each["p99_s"] for each in (idle, nobody)} == {None}
    first = json.loads(json.dumps(record_of(first_figures(figures().now)), allow_nan=False))
    assert (first["interval_s"], first["requests_per_s"]) == (None, None)


def test_the_first_column_to_sort_by_is_that_of_requests() -> None:
    assert SERVICES[BUSIEST].title == "REQ/S"
