"""Texts of peers in the cells of a terminal."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from requite.cli.live.fitting import fitted


@given(st.text(max_size=40), st.integers(1, 30), st.sampled_from(["", " (paused)"]), st.booleans())
def test_a_text_has_exactly_its_width_and_no_control_characters(
    text: str, width: int, suffix: str, to_right: bool
) -> None:
    found = fitted(text, width, suffix, to_right=to_right)
    assert cell_len(found) == width
    assert found.isprintable()


def test_a_text_that_is_too_long_loses_its_end_but_not_its_suffix() -> None:
    assert fitted("a-service-with-a-long-name", 16, " (paused)") == "a-serv… (paused)"
    assert fitted("数据服务", 6) == "数据… "
    assert fitted("\x1b[2Jgone", 12) == "\\x1b[2Jgone "
    assert fitted("12", 5, to_right=True) == "   12"
