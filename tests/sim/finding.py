"""Whether checkers find what they are there for: in broken engines, and only there."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import pytest

from requite.sim import Options, run


def assert_found(invariant: str, scenario: str, options: Options, seeds: Collection[int]) -> None:
    """Check that one of these seeds violates an invariant."""
    for seed in seeds:
        found = {violation.invariant for violation in run(seed, scenario, options).violations}
        if invariant in found:
            return
    pytest.fail(f"{invariant} found nothing in {len(seeds)} seeds of {scenario}")


def assert_whole(scenarios: Iterable[str], seeds: Collection[int] = (1,)) -> None:
    """Check that engines that are not broken violate nothing."""
    for scenario in sorted(set(scenarios)):
        for seed in seeds:
            result = run(seed, scenario)
            assert not result.violations, result.replay
            assert result.calls


def name_of(kinds: Sequence[type], module: str) -> str:
    """Return the name of the first of these kinds of engine that comes from a module."""
    return next(kind.__name__ for kind in kinds if kind.__module__ == module)
