"""TLS settings: trusted authorities, own certificate, and the `ssl` contexts made of them.

A client always verifies the server's certificate: its authority and its name. No setting turns this
off.
"""

from __future__ import annotations

import logging
import os
import ssl
import stat
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeAlias

from requite.errors import ConfigurationError
from requite.transport.sockets import why
from requite.transport.tls_session import TlsSession

StrPath: TypeAlias = str | os.PathLike[str]
Stamps: TypeAlias = tuple[tuple[int, int, int], ...]

_CERTIFICATE: Final = b"CERTIFICATE-----"
_PRIVATE_KEY: Final = b"PRIVATE KEY-----"
# Cached contexts: loading the system's authorities takes tens of milliseconds.
_CONTEXTS_MAX: Final = 32
_logger: Final = logging.getLogger("requite.transport")


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """TLS settings of one side; files are in PEM format.

    - `ca`: file of the authorities trusted to sign the peer's certificate. None: the system's
      authorities for servers; clients are not verified.
    - `certificate`, `key`: files of the own certificate, with the chain up to the authority, and of
      its private key without a passphrase. Required to listen; to dial, only if the listener
      verifies clients. Without `key`, the file `certificate` must have the private key.
    - `server_name`: the name to request (SNI) and to verify in the server's certificate, if it
      differs from the dialled host.
    - `verify_client`: a listener accepts only clients with a certificate signed by `ca`.
    - `minimum_version`: of TLS; 1.2 for peers that do not have 1.3.

    Raises `ConfigurationError` for contradictory settings. Files are read when a context is made;
    `check_dialling` and `check_listening` find errors in them early.
    """

    ca: StrPath | None = None
    certificate: StrPath | None = None
    key: StrPath | None = None
    server_name: str | None = None
    verify_client: bool = False
    minimum_version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3

    def __post_init__(self) -> None:
        if self.key is not None and self.certificate is None:
            raise ConfigurationError("TLS: `key` requires `certificate`; set both")
        if self.verify_client and self.ca is None:
            raise ConfigurationError(
                "TLS: `verify_client` requires `ca`, the file with the certificates of the"
                " authorities that sign those of clients"
            )
        name = self.server_name
        if name is not None and (not name or name.startswith((".", "[")) or "\0" in name):
            raise ConfigurationError(f"TLS: {name!r} is not a valid server_name")

    def check_dialling(self) -> None:
        """Raise `ConfigurationError`, naming file and setting, if these cannot be used to dial."""
        watched = _watched_to_dial(self)
        watched.current()
        if watched.trouble:
            raise ConfigurationError(watched.trouble)

    def check_listening(self) -> None:
        """Raise `ConfigurationError`, naming file and setting, if these cannot serve to listen."""
        self.listening_context()

    def dialling_context(self) -> ssl.SSLContext:
        """Return the context for dialling; see `WatchedContext`. Raises `ConfigurationError`."""
        return _watched_to_dial(self).current()

    def listening_context(self) -> ssl.SSLContext:
        """Make the context for a listener. Raises `ConfigurationError`."""
        if self.certificate is None:
            raise ConfigurationError(
                "TLS: a listener requires a certificate and its key; set `certificate` and `key`"
            )
        context = _new_context(ssl.PROTOCOL_TLS_SERVER, self)
        # No tickets: sessions are never resumed, and a client that closes with an unread ticket
        # resets the connection and loses its unsent data.
        context.num_tickets = 0
        _load_certificate(context, self)
        if self.verify_client and self.ca is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            _load_authorities(context, self.ca)
        return context

    def stamps(self) -> Stamps:
        """Return a value that changes when one of the files is written or replaced. Raises
        `ConfigurationError` for a missing file."""
        return tuple(
            _stamp(setting, path)
            for setting in ("ca", "certificate", "key")
            if (path := getattr(self, setting)) is not None
        )

    def session_to(self, host: str) -> TlsSession:
        """Make the session for a connection to `host`. Raises `ConfigurationError`."""
        context = self.dialling_context()
        name = self.server_name or host.partition("%")[0]  # no zone of a link-local address
        try:
            return TlsSession(context, name)
        except ValueError as error:
            raise ConfigurationError(
                f"TLS: the name {name!r} is not valid in a certificate; set `server_name`"
            ) from error


class WatchedContext:
    """A context that is made again when its files have changed.

    If changed files cannot be used, it stays as it was, and a warning names the file. `trouble` is
    then the reason, else "".

    `make` makes the context. Raises `ConfigurationError` for files that cannot be used at the
    start.
    """

    def __init__(
        self, settings: TlsSettings, make: Callable[[TlsSettings], ssl.SSLContext]
    ) -> None:
        self.trouble = ""
        self._settings = settings
        self._make = make
        self._stamps: Stamps | None = settings.stamps()
        self._context = make(settings)

    def current(self) -> ssl.SSLContext:
        """Return the context, made of the files as they are now if these can be used."""
        try:
            before, self._stamps = self._stamps, None  # it stays None if a file is missing
            # Files that cannot be used are read again when they change.
            self._stamps = self._settings.stamps()
            if self._stamps != before:
                self._context = self._make(self._settings)
                self.trouble = ""
                _logger.info("new connections use the changed files of TLS")
        except ConfigurationError as error:
            self._warn(str(error))
        return self._context

    def _warn(self, trouble: str) -> None:
        if trouble != self.trouble:
            self.trouble = trouble
            _logger.warning("%s; the certificates from before remain in use", trouble)


def _new_context(protocol: ssl._SSLMethod, settings: TlsSettings) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = settings.minimum_version
    context.options |= ssl.OP_NO_RENEGOTIATION
    return context


@lru_cache(maxsize=_CONTEXTS_MAX)
def _watched_to_dial(settings: TlsSettings) -> WatchedContext:
    return WatchedContext(settings, _dialling_context)


def _dialling_context(settings: TlsSettings) -> ssl.SSLContext:
    context = _new_context(ssl.PROTOCOL_TLS_CLIENT, settings)  # checks certificate and name
    if settings.ca is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    else:
        _load_authorities(context, settings.ca)
    if settings.certificate is not None:
        _load_certificate(context, settings)
    return context


# --- files ----------------------------------------------------------------------------------------
def _load_authorities(context: ssl.SSLContext, path: StrPath) -> None:
    _check_file("ca", path, _CERTIFICATE)
    try:
        context.load_verify_locations(cafile=path)
    except ssl.SSLError as error:
        raise _unusable("ca", path, _plain(error)) from error


def _load_certificate(context: ssl.SSLContext, settings: TlsSettings) -> None:
    certificate, key = settings.certificate, settings.key
    assert certificate is not None
    _check_file("certificate", certificate, _CERTIFICATE)
    if key is None:
        _check_file("certificate", certificate, _PRIVATE_KEY, "; set `key` to the file of the key")
    else:
        _check_file("key", key, _PRIVATE_KEY)
    try:
        context.load_cert_chain(certificate, key, password=_no_passphrase)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            reason = "it does not belong to the certificate"
            raise _unusable("key", key or certificate, reason) from error
        raise _unusable("certificate", certificate, _plain(error)) from error
    except _PassphraseWantedError:
        reason = "it is protected by a passphrase, which is not supported; use a key without one"
        raise _unusable("key", key or certificate, reason) from None


class _PassphraseWantedError(Exception):
    """OpenSSL would prompt for a passphrase at the terminal."""


def _no_passphrase() -> str:
    raise _PassphraseWantedError


def _check_file(setting: str, path: StrPath, marker: bytes, hint: str = "") -> None:
    """Raise `ConfigurationError` unless the file is readable and has `marker` in it."""
    if not stat.S_ISREG(_stat(setting, path).st_mode):  # opening a FIFO may block forever
        raise _unusable(setting, path, "it is not a regular file")
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        raise _unusable(setting, path, why(error)) from error
    if marker not in data:
        what = "private key" if marker is _PRIVATE_KEY else "certificate"
        raise _unusable(setting, path, f"it contains no {what} in PEM format{hint}")


def _stamp(setting: str, path: StrPath) -> tuple[int, int, int]:
    found = _stat(setting, path)
    return found.st_ino, found.st_size, found.st_mtime_ns


def _stat(setting: str, path: StrPath) -> os.stat_result:
    try:
        return os.stat(path)
    except OSError as error:
        raise _unusable(setting, path, why(error)) from error
    except ValueError:  # a zero byte
        raise _unusable(setting, path, "it is not a valid file name") from None


def _unusable(setting: str, path: StrPath, reason: str) -> ConfigurationError:
    return ConfigurationError(f"TLS: cannot use the {setting} {os.fspath(path)!r}: {reason}")


def _plain(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).replace("_", " ").lower()
