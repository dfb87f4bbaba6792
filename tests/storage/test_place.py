"""Which folder a path or a `file:` URL names."""

from __future__ import annotations

from pathlib import Path

import pytest

from requite.errors import ConfigurationError
from requite.storage.place import local_folder


def test_urls_of_files_name_folders(tmp_path: Path) -> None:
    assert local_folder((tmp_path / "a b").as_uri(), "a lake is kept in") == tmp_path / "a b"
    assert local_folder(tmp_path, "a lake is kept in") == tmp_path
    assert local_folder("file://localhost/tmp", "a lake is kept in") == Path("/tmp").resolve()
    assert local_folder(Path("file:///tmp"), "a lake is kept in") == Path("/tmp").resolve()
    with pytest.raises(ConfigurationError, match="a lake is kept in a folder"):
        local_folder("file:lake", "a lake is kept in")
