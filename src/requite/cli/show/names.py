"""The patterns that can be shown, by name."""

from __future__ import annotations

from typing import Final

_HERE: Final = "requite.cli.show"
PATTERNS: Final = {
    "lazy-pirate": f"{_HERE}.pirates:LazyPirates",
    "simple-pirate": f"{_HERE}.pirates:SimplePirates",
    "paranoid-pirate": f"{_HERE}.pirates:ParanoidPirates",
    "majordomo": f"{_HERE}.majordomo:Majordomo",
    "titanic": f"{_HERE}.titanic:Titanics",
    "binary-star": f"{_HERE}.binarystar:BinaryStar",
    "freelance-failover": f"{_HERE}.freelance:Failover",
    "freelance-shotgun": f"{_HERE}.freelance:Shotgun",
    "freelance-agent": f"{_HERE}.freelance:Agent",
    "pool": f"{_HERE}.pool:Pool",
}
"""The patterns by name, in the order of the Guide's chapter and beyond it, and where they are."""

_ALSO: Final = {
    "lazy": "lazy-pirate",
    "simple": "simple-pirate",
    "paranoid": "paranoid-pirate",
    "pirate": "paranoid-pirate",
    "ppp": "paranoid-pirate",
    "mdp": "majordomo",
    "tsp": "titanic",
    "binarystar": "binary-star",
    "pair": "binary-star",
    "freelance": "freelance-agent",
    "flp": "freelance-agent",
    "agent": "freelance-agent",
    "failover": "freelance-failover",
    "shotgun": "freelance-shotgun",
    "pools": "pool",
    "amqp": "pool",
    "rabbitmq": "pool",
}
"""Other names of them: a protocol's own, and a part of the name that says enough."""


def find_pattern(name: str) -> str:
    """Return the pattern that a name stands for, however it is written: `Paranoid Pirate` is
    `paranoid-pirate`. Raises `ValueError`, which tells what there is."""
    plain = "-".join(name.lower().replace("_", " ").replace("-", " ").split())
    found = _ALSO.get(plain, plain)
    if found not in PATTERNS:
        raise ValueError(f"there is no pattern {name!r}; there are {', '.join(PATTERNS)}")
    return found
