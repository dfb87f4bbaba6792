"""A bytecode cache for the tests and for the thousands of processes that they start.

With PYTHONDONTWRITEBYTECODE set, or with packages in a read-only folder, every process would
compile all modules that it imports: more than half of the cost of `requite call`. The cache has a
folder of its own, so no bytecode appears beside the sources.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

_FOLDER: Final = Path(__file__).parents[2] / ".bytecode_cache"


def keep() -> None:
    """Enable the bytecode cache for this process and its children.

    The environment variable PYTHONPYCACHEPREFIX overrides its folder.
    """
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    sys.pycache_prefix = os.environ.setdefault("PYTHONPYCACHEPREFIX", str(_FOLDER))
