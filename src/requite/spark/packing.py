"""Pack this very requite for a cluster: what `spark-submit --py-files` sends to the executors.

A wheel does not do: Spark puts it on nobody's path. An archive of the packages does, since requite
is plain Python; what it needs besides (pyarrow) has to be installed where the executors run.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

import requite

ARCHIVE: Final = "requite.zip"
PROGRAM: Final = "requite_submit.py"

_PACKAGES: Final = ("requite", "pyspark_requite")
_PROGRAM: Final = '''\
"""What spark-submit runs: `spark-submit --py-files requite.zip requite_submit.py run ...`."""

from requite.spark.__main__ import main

raise SystemExit(main())
'''


def pack(folder: Path) -> tuple[Path, Path]:
    """Write `requite.zip` and `requite_submit.py` to a folder; return where they are.

    The same files always make the same archive, byte for byte.
    """
    folder.mkdir(parents=True, exist_ok=True)
    archive, program = folder / ARCHIVE, folder / PROGRAM
    with ZipFile(archive, "w", ZIP_DEFLATED) as target:
        for name, content in _files():
            target.writestr(ZipInfo(name), content, ZIP_DEFLATED)
    program.write_text(_PROGRAM)
    return archive, program


def _files() -> Iterator[tuple[str, bytes]]:
    """Yield the names and contents of what goes into the archive, in order.

    Folders too: without an entry of its own, one that has no `__init__.py` cannot be imported.
    """
    root = Path(requite.__file__).parent.parent
    for package in _PACKAGES:
        for path in sorted((root / package).rglob("*")):
            name = path.relative_to(root).as_posix()
            if "__pycache__" not in path.parts:
                yield (f"{name}/", b"") if path.is_dir() else (name, path.read_bytes())
