"""Randomness for shells, from the operating system.

The simulator replaces `source` and `jitter` while it runs, so use them as `entropy.source` and
`entropy.jitter`; do not import the names.
"""

import random
from typing import Final

_SYSTEM: Final = random.SystemRandom()

source: random.Random = _SYSTEM
"""For values that must differ between processes: names, first ids, keys."""

jitter = random.random
"""Uniform in [0, 1), for pauses: cheap, not cryptographic."""
