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
}
"""The patterns by name, in the order of the Guide's chapter, and where they are."""
