"""Keys of CURVE (RFC 26) in files, and the security mechanisms of ZMTP made of them.

A file is read again when a connection is made and the file has changed. If its new content is bad,
the old one stays in use, and a warning says why.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Generic, TypeAlias, TypeVar

from requite.errors import ConfigurationError
from requite.framing.z85 import KEY_SIZE, decode_z85, encode_z85, read_key
from requite.framing.zmtp_mechanism import Mechanism
from requite.shell import entropy
from requite.storage.private import create_file, read_private

if TYPE_CHECKING:
    from requite.framing.zmtp_curve import KeyPair

StrPath: TypeAlias = str | os.PathLike[str]
_Stamp: TypeAlias = tuple[int, int, int, int]

_SECRET_KEYS: Final = "secret keys"
_log = logging.getLogger("requite.curve")

T = TypeVar("T")


class CurveDialler:
    """The keys of a client or worker.

    - `server_key`: the public key of the server in Z85, or a file that has it.
    - `key_file`: a file with the own secret key in Z85, which only its user may access.

    Raises `ConfigurationError` for bad keys and files, and if PyNaCl is not installed.
    """

    def __init__(self, server_key: str, key_file: StrPath) -> None:
        _require_nacl()
        self._server_key = _server_key_of(server_key)
        self._own = _WatchedFile(key_file, _read_one_pair)

    def mechanism(self) -> Mechanism:
        """Return the mechanism of the next connection."""
        from requite.framing.zmtp_curve import CurveClient

        return CurveClient(self._server_key(), self._own.content(), _random)


class CurveListener:
    """The keys of a broker, queue or server, and those of the clients and workers it admits.

    - `key_file`: a file with the own secret key in Z85, which only its user may access. It may have
      several, one per line, which are all valid while peers change to another one.
    - `clients`: a file with the public keys of the peers that are admitted, in Z85: one per line,
      and after a blank any text. Or a function that returns whether a public key is admitted.

    Lines that begin with # are comments. Raises `ConfigurationError` for bad keys and files, and
    if PyNaCl is not installed.
    """

    def __init__(self, key_file: StrPath, clients: StrPath | Callable[[str], bool]) -> None:
        _require_nacl()
        self._own = _WatchedFile(key_file, _read_pairs)
        self._check = clients if callable(clients) else _is_listed_in(clients)

    @property
    def public_keys(self) -> list[str]:
        """The own public keys in Z85, as in the file."""
        return [pair.public_text for pair in self._own.content()]

    def mechanism(self) -> Mechanism:
        """Return the mechanism of the next connection."""
        from requite.framing.zmtp_curve import CurveServer

        return CurveServer(self._own.content(), self._check, _random)


def create_key_file(path: StrPath) -> str:
    """Write a new secret key to a new file, which only its user may access; return its public key.

    Raises `ConfigurationError` if the file exists or cannot be written, and if PyNaCl is not
    installed.
    """
    _require_nacl()
    from requite.framing.zmtp_curve import KeyPair

    where = Path(path)
    if where.exists():
        raise ConfigurationError(f"{where} exists; remove it, or write the key to another file")
    pair = KeyPair.of(_random(32))
    try:
        with os.fdopen(create_file(where), "w", encoding="ascii") as file:
            file.write(f"# the secret key of {pair.public_text}\n{encode_z85(pair.secret)}\n")
    except OSError as error:
        raise ConfigurationError(f"cannot write {where}: {error.strerror}") from error
    return pair.public_text


def _require_nacl() -> None:
    """Raise `ConfigurationError` unless PyNaCl is installed."""
    try:
        import nacl._sodium
        import nacl.bindings  # noqa: F401
    except ImportError:
        raise ConfigurationError(
            "CURVE requires the package PyNaCl: pip install 'requite[curve]'"
        ) from None


def _random(size: int) -> bytes:
    return entropy.source.randbytes(size)


# --- files ----------------------------------------------------------------------------------------
class _WatchedFile(Generic[T]):
    """The content of a file, read again once the file has changed."""

    def __init__(self, path: StrPath, read: Callable[[Path], T]) -> None:
        self._path = Path(path)
        self._read = read
        self._stamp = _stamp_of(self._path)
        self._content = read(self._path)

    def content(self) -> T:
        """Return the content; the last good one if the file is bad now."""
        stamp = _stamp_of(self._path)
        if stamp != self._stamp:
            self._stamp = stamp
            try:
                self._content = self._read(self._path)
            except ConfigurationError as error:
                _log.warning("the keys of CURVE remain as they were: %s", error)
        return self._content


def _stamp_of(path: Path) -> _Stamp | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_size


def _read_pairs(path: Path) -> Sequence[KeyPair]:
    from requite.framing.zmtp_curve import KeyPair

    lines = _lines(read_private(path, _SECRET_KEYS))
    pairs = [KeyPair.of(read_key(text, _place(path, number))) for number, text in lines]
    if not pairs:
        raise ConfigurationError(f"{path} has no key; write a secret key in Z85 to it")
    return pairs


def _read_one_pair(path: Path) -> KeyPair:
    pairs = _read_pairs(path)
    if len(pairs) > 1:
        raise ConfigurationError(
            f"{path} has {len(pairs)} keys; a client or worker needs a file with one"
        )
    return pairs[0]


def _read_public_keys(path: Path) -> frozenset[str]:
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ConfigurationError(
            f"cannot read the public keys in {path}: it is not UTF-8"
        ) from None
    except OSError as error:
        raise ConfigurationError(
            f"cannot read the public keys in {path}: {error.strerror}"
        ) from error
    return frozenset(
        encode_z85(read_key(key, _place(path, number))) for number, key in _lines(text)
    )


def _server_key_of(given: str) -> Callable[[], bytes]:
    """Return what returns the server key: 40 characters of Z85 are the key, others a path."""
    try:
        key = decode_z85(given)
    except ValueError:
        key = b""
    if len(key) == KEY_SIZE:
        return lambda: key
    try:
        return _WatchedFile(given, _read_server_key).content
    except ConfigurationError as error:
        raise ConfigurationError(
            f"the server key of CURVE, {given!r}, is neither 40 characters of Z85 nor a file with"
            f" them: {error}"
        ) from None


def _read_server_key(path: Path) -> bytes:
    keys = _read_public_keys(path)
    if len(keys) != 1:
        raise ConfigurationError(f"{path} has {len(keys)} keys; one is needed")
    return decode_z85(next(iter(keys)))


def _lines(text: str) -> list[tuple[int, str]]:
    """Return the first word of each line that is not empty or a comment, with its number.

    No key begins with "#": in Z85 these five characters would be a number above 32 bits.
    """
    words = [line.partition(" ")[0] for line in text.splitlines()]
    return [(n, word) for n, word in enumerate(words, 1) if word and not word.startswith("#")]


def _place(path: Path, number: int) -> str:
    return f"the key in line {number} of {path}"


def _is_listed_in(clients: StrPath) -> Callable[[str], bool]:
    return partial(_is_listed, _WatchedFile(clients, _read_public_keys))


def _is_listed(keys: _WatchedFile[frozenset[str]], key: str) -> bool:
    return key in keys.content()
