"""What is said in written scenarios does not change unnoticed.

`python -m tests.transcripts` writes it down anew, on purpose.
"""

from __future__ import annotations

import pytest
from tests.transcripts.play import names, read, render


@pytest.mark.parametrize("name", names())
def test_a_scenario_goes_as_it_is_written_down(name: str) -> None:
    script, transcript = read(name)
    assert transcript, f"{name} was never played: python -m tests.transcripts {name}"
    assert render(script) == transcript
    assert "VIOLATED" not in transcript


def test_there_are_transcripts() -> None:
    assert len(names()) >= 10
