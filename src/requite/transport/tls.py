"""TLS: whose certificates are trusted, which is shown, and the contexts of `ssl` made of that.

TLS 1.2 is the oldest version spoken. Who dials checks the server's certificate, the authority that
signed it and the name it was given for; there is no setting that turns this off.
"""

from __future__ import annotations

import os
import ssl
import stat
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeAlias

from requite.errors import ConfigurationError
from requite.transport.sockets import why
from requite.transport.tls_session import TlsSession

StrPath: TypeAlias = str | os.PathLike[str]
_Stamps: TypeAlias = tuple[tuple[int, int, int], ...]

_CERTIFICATE: Final = b"CERTIFICATE-----"
_PRIVATE_KEY: Final = b"PRIVATE KEY-----"
# Contexts kept ready: to load the authorities of a system takes tens of milliseconds.
_CONTEXTS_MAX: Final = 32


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """What one side of TLS needs to know; files hold PEM, paths are given as they are opened.

    - `ca`: the authorities trusted to sign the other side's certificate. None: those that the
      system trusts, for servers; no client is checked then.
    - `certificate`, `key`: what we show, with the chain up to the authority, and its private key
      (without a passphrase). A listener must have them; who dials, if the listener asks. Without
      `key`, the private key is looked for in the file `certificate`.
    - `server_name`: the name that the server's certificate must be for, and that it is asked for,
      where it is not the host that is dialled.
    - `verify_client`: a listener takes clients only that show a certificate signed by `ca`.

    Raises `ConfigurationError` for settings that contradict each other. Files are read when a
    context is made; use `check_dialling` and `check_listening` to find trouble with them early.
    """

    ca: StrPath | None = None
    certificate: StrPath | None = None
    key: StrPath | None = None
    server_name: str | None = None
    verify_client: bool = False

    def __post_init__(self) -> None:
        if self.key is not None and self.certificate is None:
            raise ConfigurationError("TLS: a key needs its certificate: give certificate, too")
        if self.verify_client and self.ca is None:
            raise ConfigurationError("TLS: to check clients needs ca: who signs their certificates")
        name = self.server_name
        if name is not None and (not name or name.startswith((".", "[")) or "\0" in name):
            raise ConfigurationError(f"TLS: {name!r} is no server_name")

    def check_dialling(self) -> None:
        """Raise `ConfigurationError`, naming file and setting, if nobody could be dialled so."""
        self.dialling_context()

    def check_listening(self) -> None:
        """Raise `ConfigurationError`, naming file and setting, if nobody could listen so."""
        self.listening_context()

    def dialling_context(self) -> ssl.SSLContext:
        """Return the context for who dials; a file that was changed since the last time is read
        again. Raises `ConfigurationError`.
        """
        return _dialling_context(self, _stamps(self))

    def listening_context(self) -> ssl.SSLContext:
        """Make the context for a listener. Raises `ConfigurationError`."""
        if self.certificate is None:
            raise ConfigurationError(
                "TLS: a listener needs a certificate and its key: give certificate and key"
            )
        context = _new_context(ssl.PROTOCOL_TLS_SERVER)
        # No tickets: nobody resumes sessions here, and one that is left unread when a client closes
        # makes its system reset the connection, with all that had not left yet.
        context.num_tickets = 0
        _load_certificate(context, self)
        if self.verify_client and self.ca is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            _load_authorities(context, self.ca)
        return context

    def session_to(self, host: str) -> TlsSession:
        """Make the session for a connection to `host`. Raises `ConfigurationError`."""
        context = self.dialling_context()
        name = self.server_name or host.partition("%")[0]  # no zone of a link-local address
        try:
            return TlsSession(context, name)
        except ValueError as error:
            raise ConfigurationError(f"TLS: no certificate is for the name {name!r}") from error


def _new_context(protocol: ssl._SSLMethod) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    return context


@lru_cache(maxsize=_CONTEXTS_MAX)
def _dialling_context(settings: TlsSettings, _stamps_of_files: _Stamps) -> ssl.SSLContext:
    context = _new_context(ssl.PROTOCOL_TLS_CLIENT)  # checks certificate and name
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
        _check_file("certificate", certificate, _PRIVATE_KEY, "; name its file with key")
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
        reason = "it is protected by a passphrase, which nobody is there to enter"
        raise _unusable("key", key or certificate, reason) from None


class _PassphraseWantedError(Exception):
    """OpenSSL would ask for a passphrase at the terminal."""


def _no_passphrase() -> str:
    raise _PassphraseWantedError


def _check_file(setting: str, path: StrPath, marker: bytes, hint: str = "") -> None:
    """Raise `ConfigurationError` unless a file can be read and holds what it should."""
    if not stat.S_ISREG(_stat(setting, path).st_mode):  # to open a FIFO may take for ever
        raise _unusable(setting, path, "it is not a regular file")
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        raise _unusable(setting, path, why(error)) from error
    if marker not in data:
        what = "private key" if marker is _PRIVATE_KEY else "certificate"
        raise _unusable(setting, path, f"it holds no {what} in the form PEM{hint}")


def _stamps(settings: TlsSettings) -> _Stamps:
    """Return what changes when one of the files is written or replaced."""
    return tuple(
        _stamp(setting, path)
        for setting in ("ca", "certificate", "key")
        if (path := getattr(settings, setting)) is not None
    )


def _stamp(setting: str, path: StrPath) -> tuple[int, int, int]:
    found = _stat(setting, path)
    return found.st_ino, found.st_size, found.st_mtime_ns


def _stat(setting: str, path: StrPath) -> os.stat_result:
    try:
        return os.stat(path)
    except OSError as error:
        raise _unusable(setting, path, why(error)) from error
    except ValueError:  # a zero byte
        raise _unusable(setting, path, "that is no name of a file") from None


def _unusable(setting: str, path: StrPath, reason: str) -> ConfigurationError:
    return ConfigurationError(f"TLS: cannot use the {setting} {os.fspath(path)!r}: {reason}")


def _plain(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).replace("_", " ").lower()
