"""Feed the reader of certificates coverage-guided garbage.

    python -m fuzz.drive fuzz_certificate DIRECTORY [libFuzzer options]

An input is a certificate in DER. Checks for each input: only `ValueError` is raised, with a
message; a public key that is found is one whole element of the input, and bytes behind the
certificate change nothing.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

from requite.cli.keys.certificates import new_authority
from requite.transport.certificate import public_key_of


def one_input(data: bytes) -> None:
    """Run one input; an exception or a failed assertion is a finding."""
    try:
        key = public_key_of(data)
    except ValueError as error:
        if not str(error):
            raise AssertionError("nobody could tell what is wrong") from error
        return
    assert key in data
    assert _size(key) == len(key), "the key is not one whole element"
    assert public_key_of(data + b"\x30\x00") == key


def _size(element: bytes) -> int:
    """Return the size of an element that its header states (X.690, section 8.1.3)."""
    first = element[1]
    if first < 0x80:
        return 2 + first
    end = 2 + (first & 0x7F)
    return end + int.from_bytes(element[2:end], "big")


def corpus() -> Iterator[bytes]:
    """Yield certificates."""
    for name in ("a", "x" * 64):
        yield ssl.PEM_cert_to_DER_cert(new_authority(name, days=1).certificate.decode())


def make_corpus(directory: Path) -> None:
    """Write each input of the corpus to a file."""
    directory.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(corpus()):
        (directory / f"{number:03}").write_bytes(data)
