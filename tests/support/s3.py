"""An S3 on this machine, and buckets in it.

It is a process of its own: some functions of delta-rs wait for it without letting other threads of
Python run.

    python -m tests.support.s3      prints its endpoint, and ends with its stdin
"""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator, Mapping
from itertools import count
from subprocess import PIPE
from typing import Final
from urllib.request import Request, urlopen

import pytest

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
    command = [sys.executable, "-m", "tests.support.s3"]
    with subprocess.Popen(command, stdin=PIPE, stdout=PIPE, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        yield server.stdout.readline().strip()
        server.stdin.close()


@pytest.fixture
def bucket(s3: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a new bucket; endpoint and credentials are in the environment."""
    speak_to(monkeypatch, settings_of(s3))
    return make_bucket(s3)


def main() -> None:
    """Be the S3."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").disabled = True  # a line for each request
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    print(f"http://{host}:{port}", flush=True)
    sys.stdin.read()
    server.stop()


if __name__ == "__main__":
    main()
