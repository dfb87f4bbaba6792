"""A local S3 server (moto), and buckets in it.

The server runs in a separate process, because some functions of delta-rs block on it while they
hold the GIL.

    python -m tests.support.s3      prints the endpoint, and stops at the end of stdin
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
    """Return the environment variables with which S3 clients use this endpoint."""
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "nobody",
        "AWS_SECRET_ACCESS_KEY": SECRET,
    }


def make_bucket(endpoint: str) -> str:
    """Create a new bucket; return its URL."""
    name = f"bucket-{next(_numbers)}"
    with urlopen(Request(f"{endpoint}/{name}", method="PUT")):
        return f"s3://{name}"


def speak_to(monkeypatch: pytest.MonkeyPatch, settings: Mapping[str, str]) -> None:
    """Set environment variables for the duration of a test."""
    for name, value in settings.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="session")
def s3() -> Iterator[str]:
    """The endpoint of a running S3 server."""
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
    """Run the S3 server until the end of stdin."""
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
