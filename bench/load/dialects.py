"""The wire formats that the generator knows."""

from __future__ import annotations

from bench.load.dialect import Dialect


def by_name(name: str) -> Dialect:
    """Return the dialect called `name`; only its own module is imported."""
    if name == "nats":
        from bench.load import nats

        return nats.DIALECT
    if name == "mdp-0.3":
        from bench.load import mdp03

        return mdp03.DIALECT
    from bench.load import mdp02

    return mdp02.DIALECTS[name]
