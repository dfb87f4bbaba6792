"""Compiled modules for the tests and for the processes that they start, some thousands.

Where PYTHONDONTWRITEBYTECODE is set, or packages lie where nobody may write, every process would
compile whatever it imports: more than half of what `requite call` costs. So there is a folder for
what is compiled, and nothing is left beside the sources.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

_FOLDER: Final = Path(__file__).parents[2] / ".bytecode_cache"


def keep() -> None:
    """Keep what this process and its children compile; PYTHONPYCACHEPREFIX names another folder."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    sys.pycache_prefix = os.environ.setdefault("PYTHONPYCACHEPREFIX", str(_FOLDER))
