"""The ranking of names by weight."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from requite.core.ranking import Ranking

names = st.sampled_from([b"", b"ann", b"bob", b"eve"])
changes = st.lists(st.tuples(names, st.none() | st.integers(0, 5)), max_size=400)


@given(changes)
def test_the_heaviest_name_is_found_after_any_changes(changes: list[tuple[bytes, int]]) -> None:
    ranking = Ranking()
    expected: dict[bytes, int] = {}
    assert ranking.heaviest() is None
    for name, weight in changes:
        if weight is None:
            ranking.drop(name)
            expected.pop(name, None)
        else:
            ranking.set(name, weight)
            expected[name] = weight
        assert ranking.weights == expected
        heaviest = ranking.heaviest()
        assert expected.get(heaviest) == max(expected.values(), default=None)


def test_outdated_weights_take_no_memory() -> None:
    ranking = Ranking()
    for n in range(10_000):
        ranking.set(b"%d" % (n % 3), n)
    assert len(ranking._heap) <= 100
    assert ranking.heaviest() == b"0"
