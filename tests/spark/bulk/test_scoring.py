"""The example `scoring`, run as its README says except for the port."""

from __future__ import annotations

import shutil
from decimal import Decimal
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.spark import spark_settings
from tests.support.page_steps import Terminals, steps
from tests.support.type_checkers import checked

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(180)]

EXAMPLE = Path(__file__).parents[3] / "examples" / "scoring"
README = (EXAMPLE / "README.md").read_text()
PRINTED = "127.0.0.1:5555"


def test_the_example_runs_as_its_readme_says(tmp_path: Path) -> None:
    folder = tmp_path / "scoring"
    shutil.copytree(EXAMPLE, folder)
    terminals = Terminals(folder, spark_settings.environment(tmp_path), within_s=150)
    place = PRINTED
    try:
        for words, output in steps(README):
            if words[1] == "broker":
                printed = terminals.run([*words, "--bind", "tcp://127.0.0.1:0"])
                place = printed.split("tcp://")[1].strip()
            else:
                words = [word.replace(PRINTED, place) for word in words]
                if "payments.py" in words:  # a second run writes the same table
                    terminals.run(words)
                printed = terminals.run(words)
            shown, wanted = printed.replace(place, PRINTED).split(), output.split()
            assert shown[: len(wanted)] == wanted, printed
    finally:
        terminals.close()
    scores = pq.read_table(folder / "result" / "scores").to_pylist()
    assert len(scores) == 1998
    by_id = {row["payment_id"]: row for row in scores}
    assert by_id[0]["risk"] == Decimal("0.1300")
    assert by_id[0]["reasons"] == ["at night", "first payment"]
    failures = pq.read_table(folder / "result" / "failures").sort_by("payment_id").to_pylist()
    assert [(row["payment_id"], row["status"], row["error_data"]) for row in failures] == [
        (7, "UnknownCountry", '{"country": "XX"}'),
        (8, "BadRequest", '{"path": "$.hour", "reason": "expected int <= 23"}'),
    ]


@pytest.mark.parametrize("checker", ["mypy", "basedpyright"])
def test_its_types_are_correct(checker: str, tmp_path: Path) -> None:
    for file in EXAMPLE.glob("*.py"):
        shutil.copy(file, tmp_path)
    assert checked(checker, tmp_path) == []
