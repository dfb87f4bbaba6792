"""The wire formats of the generator."""

from __future__ import annotations

from bench.load.dialect import Dialect


def by_name(name: str) -> Dialect:
    """Return the dialect `name`; import only its module."""
    if name == "nats":
        from bench.load import nats

        return nats.DIALECT
    if name == "mdp-0.3":
        from bench.load import mdp03

        return mdp03.DIALECT
    if name == "mdp-0.3-tls":
        from bench.load import tls

        return tls.DIALECT
    from bench.load import mdp02

    return mdp02.DIALECTS[name]
