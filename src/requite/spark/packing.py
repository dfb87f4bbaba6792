"""Packs the running requite into an archive for `spark-submit --py-files`.

Spark does not add wheels to the executors' import path, so this is a zip of the packages, which
works since requite is pure Python. Its dependency pyarrow must be installed on the executors.
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
"""The program for spark-submit: `spark-submit --py-files requite.zip requite_submit.py run ...`."""

from requite.spark.__main__ import main

raise SystemExit(main())
'''


def pack(folder: Path) -> tuple[Path, Path]:
    """Write `requite.zip` and `requite_submit.py` to a folder; return their paths.

    The archive is reproducible: the same files give the same bytes.
    """
    folder.mkdir(parents=True, exist_ok=True)
    archive, program = folder / ARCHIVE, folder / PROGRAM
    with ZipFile(archive, "w", ZIP_DEFLATED) as target:
        for name, content in _files():
            target.writestr(ZipInfo(name), content, ZIP_DEFLATED)
    program.write_text(_PROGRAM)
    return archive, program


def _files() -> Iterator[tuple[str, bytes]]:
    """Yield name and content of each entry of the archive, in order.

    Folders have entries, too: otherwise one without `__init__.py` cannot be imported.
    """
    root = Path(requite.__file__).parent.parent
    for package in _PACKAGES:
        for path in sorted((root / package).rglob("*")):
            name = path.relative_to(root).as_posix()
            if "__pycache__" not in path.parts:
                yield (f"{name}/", b"") if path.is_dir() else (name, path.read_bytes())
