"""Where shells take randomness from: the operating system.

The simulator replaces `source` and `jitter` while it runs, as it replaces `clock.now`; so call them
by the name of this module, and import neither.
"""

import random
from typing import Final

_SYSTEM: Final = random.SystemRandom()

source: random.Random = _SYSTEM
"""For what must differ between processes: names, first numbers, keys."""

jitter = random.random
"""Uniform in [0, 1), for pauses: cheap, and predictable by nobody who matters."""
