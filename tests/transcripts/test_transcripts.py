"""The messages of scripted scenarios are the same as in their transcripts.

After an intended change, `python -m tests.transcripts` rewrites the transcripts.
"""

from __future__ import annotations

import pytest
from tests.transcripts.play import names, read, render


@pytest.mark.parametrize("name", names())
def test_a_scenario_matches_its_transcript(name: str) -> None:
    script, transcript = read(name)
    assert transcript, f"{name} was never played: python -m tests.transcripts {name}"
    assert render(script) == transcript
    assert "VIOLATED" not in transcript


def test_there_are_transcripts() -> None:
    assert len(names()) >= 10
