"""An S3 that runs in the process of the tests, and buckets in it."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Final
from urllib.request import Request, urlopen

import pytest
from moto.server import ThreadedMotoServer

_numbers: Final = count()

SECRET: Final = "hush-hush"


def settings_of(endpoint: str) -> dict[str, str]:
    """Return the variables that have every client speak to an S3."""
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "nobody",
        "AWS_SECRET_ACCESS_KEY": SECRET,
    }


def make_bucket(endpoint: str) -> str:
    """Make a new bucket; return its URL."""
    name = f"bucket-{next(_numbers)}"
    with urlopen(Request(f"{endpoint}/{name}", method="PUT")):
        return f"s3://{name}"


def speak_to(monkeypatch: pytest.MonkeyPatch, settings: Mapping[str, str]) -> None:
    """Set the variables for a test."""
    for name, value in settings.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="session")
def s3() -> Iterator[str]:
    """The endpoint of an S3."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    logging.getLogger("werkzeug").disabled = True  # a line for each request
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(s3: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a new bucket; endpoint and credentials are in the environment."""
    speak_to(monkeypatch, settings_of(s3))
    return make_bucket(s3)
