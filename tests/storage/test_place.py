"""Folders and object stores that a path or URL names."""

from __future__ import annotations

from pathlib import Path

import pytest

from requite.errors import ConfigurationError
from requite.storage.place import is_store, local_folder, place_of


def test_file_urls_name_folders(tmp_path: Path) -> None:
    assert local_folder((tmp_path / "a b").as_uri(), "a lake is stored in") == tmp_path / "a b"
    assert local_folder(tmp_path, "a lake is stored in") == tmp_path
    assert local_folder("file://localhost/tmp", "a lake is stored in") == Path("/tmp").resolve()
    assert local_folder(Path("file:///tmp"), "a lake is stored in") == Path("/tmp").resolve()
    with pytest.raises(ConfigurationError, match="a lake is stored in a folder"):
        local_folder("file:lake", "a lake is stored in")


def test_urls_of_places_are_normalized(tmp_path: Path) -> None:
    for url in (
        "s3://bucket/a/b",
        "s3a://bucket/a/b/",
        "S3A://bucket/a/b",
        Path("s3a://bucket/a/b"),
    ):
        assert place_of(url, "a lake is stored in") == "s3://bucket/a/b"
    azure = "abfss://container@account.dfs.core.windows.net/lake"
    assert place_of(azure, "a lake is stored in") == azure
    assert is_store(place_of("gs://bucket", "a lake is stored in"))
    assert place_of(tmp_path.as_uri(), "a lake is stored in") == str(tmp_path)
    assert not is_store(str(tmp_path))


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("hdfs://name/lake", "hdfs: is not supported"),
        ("s3://", "has no bucket"),
        ("s3://me:secret@bucket/lake", "set them in the environment"),
    ],
)
def test_invalid_urls_are_refused(url: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as raised:
        place_of(url, "a lake is stored in")
    assert "secret" not in str(raised.value)


def test_an_object_store_is_refused_where_a_folder_is_needed() -> None:
    with pytest.raises(ConfigurationError, match="a titanic is read from a folder"):
        local_folder("s3://bucket/requests", "a titanic is read from")
