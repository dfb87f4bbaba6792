"""The access file: users, their credentials and rights, in TOML.

    [user.shop]
    tls = "CN=shop"                         # or a list, while a certificate is replaced
    call = ["price", "pay.*"]
    titanic = ["submit"]

    [user.pay-worker]
    curve = ["rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7"]
    serve = ["pay.*"]

    [user.ops]
    password = "scrypt$14$8$1$...$..."
    admin = ["*"]

A user is recognised by any of its credentials. What no line grants is denied. Errors name file, line
and key, and never show a value.
"""  # noqa: E501

from __future__ import annotations

import os
import re
import stat
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

from requite.access.passwords import PasswordHash, parse_hash
from requite.access.tokens import KIND, is_hash
from requite.errors import ConfigurationError
from requite.principal import NO_QUOTA, VERBS, Quota, Rights
from requite.storage.private import is_exposed

SIZE_MAX: Final = 16 << 20
USERS_MAX: Final = 100_000
NAME_SIZE_MAX: Final = 255
USER_ID_MAX: Final = (1 << 32) - 2  # the last one stands for "no user"
AMOUNT_MAX: Final = 1 << 62
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]*")
_KINDS: Final = ("tls", "curve", "local", KIND)
_ADMIN: Final = ("stats", "kick", "pause", "purge", "drain", "switch", "titanic")
_TITANIC: Final = ("submit",)
_DEFAULT: Final = "default"


@dataclass(frozen=True, slots=True)
class User:
    """One user: its credentials by kind, whether peers without a credential are this user, its
    rights, and the name of its quota."""

    name: str
    credentials: frozenset[tuple[str, str]] = frozenset()
    passwords: tuple[PasswordHash, ...] = field(default=(), repr=False)
    anonymous: bool = False
    rights: Rights = field(default_factory=Rights)
    quota: Quota = NO_QUOTA


@dataclass(frozen=True, slots=True)
class AccessFile:
    """The content of an access file; `path` and `lines` are for explanations."""

    path: str
    users: Mapping[str, User]
    lines: tuple[str, ...] = field(default=(), repr=False)

    def line_of(self, user: str, key: str = "", value: str = "") -> int:
        """Return the number of the line with a user's table, its key, or a value of that key; 0 if
        it cannot be found."""
        heads = (f"[user.{user}]", f'[user."{user}"]', f"[user.'{user}']")
        at = found = 0
        for number, line in enumerate(self.lines, start=1):
            text = line.partition("#")[0].strip()
            if not at and text.replace(" ", "") in heads:
                at = found = number
                if not key:
                    return number
            elif at and text.startswith("[") and not _is_item(text):
                return found
            elif at and found == at and re.match(rf"[\"']?{re.escape(key)}[\"']?\s*=", text):
                found = number
            if at and found > at and (not value or value in line):
                return number
        return found


def _is_item(text: str) -> bool:
    """Whether a line that starts with a bracket continues an array."""
    return not text.rstrip().endswith("]") or (text.startswith(("['", '["')) and "user" not in text)


def read(path: Path) -> AccessFile:
    """Read an access file. Raises `ConfigurationError`; other users must have no access to it."""
    try:
        # Without O_NONBLOCK, opening a FIFO may block forever.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise ConfigurationError(f"the access file {path} is not a regular file")
            if is_exposed(status):
                mode = stat.S_IMODE(status.st_mode)
                raise ConfigurationError(
                    f"other users of this machine may use the access file {path} (mode"
                    f" {mode:04o}): run `chmod 600 {path}`"
                )
            data = file.read(SIZE_MAX + 1)
    except OSError as error:
        raise ConfigurationError(
            f"cannot read the access file {path}: {error.strerror or error}"
        ) from error
    if len(data) > SIZE_MAX:
        raise ConfigurationError(f"the access file {path} has more than {SIZE_MAX} bytes")
    if not data.strip():  # an editor empties a file before it writes it
        raise ConfigurationError(
            f"the access file {path} is empty, so it may be about to be written; to admit nobody,"
            " write a comment into it"
        )
    return parse(data, str(path))


def parse(data: bytes, path: str = "access.toml") -> AccessFile:
    """Parse the content of an access file. Raises `ConfigurationError`."""
    try:
        text = data.decode()
        tables = tomllib.loads(text)
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path} is not UTF-8: byte {error.start}") from None
    except (ValueError, RecursionError) as error:  # ValueError: also a number of 5,000 digits
        raise ConfigurationError(f"{path} is not TOML: {error}") from None
    lines = tuple(text.splitlines())
    reader = _Reader(AccessFile(path, {}, lines))
    return AccessFile(path, reader.users(tables), lines)


class _Reader:
    """Makes users of the tables of a file; `_file` finds the lines for errors."""

    def __init__(self, file: AccessFile) -> None:
        self._file = file

    def users(self, tables: Mapping[str, Any]) -> dict[str, User]:
        self._known(tables, ("user", "quota"), "", "table")
        quotas = self._quotas(self._table(tables.get("quota", {}), "quota"))
        rows = self._table(tables.get("user", {}), "user")
        if len(rows) > USERS_MAX:
            raise self._error("", "", f"there are {len(rows)} users; the maximum is {USERS_MAX}")
        users = {name: self._user(name, row, quotas) for name, row in rows.items()}
        self._check_unique(users)
        return users

    # --- users ------------------------------------------------------------------------------------
    def _user(self, name: str, row: Any, quotas: Mapping[str, Quota]) -> User:
        if not _NAME.fullmatch(name) or len(name) > NAME_SIZE_MAX:
            raise self._error(
                name,
                "",
                "the name of a user has letters, digits and . _ @ + -, at most"
                f" {NAME_SIZE_MAX}, and begins with a letter or digit",
            )
        if not isinstance(row, dict):
            raise self._error(name, "", f"write it as a table, [user.{name}]")
        self._known(row, (*_KINDS, "password", "anonymous", "quota", *VERBS), name, "key")
        credentials = frozenset(
            (kind, value)
            for kind in _KINDS
            for value in self._credentials(name, kind, row.get(kind, []))
        )
        passwords = tuple(self._passwords(name, row.get("password", [])))
        anonymous = row.get("anonymous", False)
        if not isinstance(anonymous, bool):
            raise self._error(name, "anonymous", "it is true or false")
        rights = Rights(*(tuple(self._globs(name, verb, row.get(verb, []))) for verb in VERBS))
        quota = row.get("quota", _DEFAULT)
        if not isinstance(quota, str):
            raise self._error(name, "quota", "it is the name of a table [quota.NAME], as text")
        if quota not in quotas and quota != _DEFAULT:
            raise self._error(name, "quota", f"there is no table [quota.{quota}]")
        found = quotas.get(quota, NO_QUOTA)
        return User(name, credentials, passwords, anonymous, rights, found)

    def _credentials(self, user: str, kind: str, value: Any) -> Iterator[str]:
        for each in value if isinstance(value, list) else [value]:
            if kind == "local" and isinstance(each, int) and not isinstance(each, bool):
                if not 0 <= each <= USER_ID_MAX:
                    raise self._error(user, kind, f"a user id is 0 to {USER_ID_MAX}")
                yield str(each)
            elif kind == KIND and not (isinstance(each, str) and is_hash(each)):
                raise self._error(
                    user, kind, "it is not a hash of a token; make one with `requite access token`"
                )
            elif isinstance(each, str) and each and each.isprintable():
                yield each
            else:
                raise self._error(user, kind, "write it as text, or as a list of texts")

    def _passwords(self, user: str, value: Any) -> Iterator[PasswordHash]:
        for each in value if isinstance(value, list) else [value]:
            if not isinstance(each, str):
                raise self._error(user, "password", "write it as text, or as a list of texts")
            try:
                yield parse_hash(each)
            except ConfigurationError as error:
                raise self._error(user, "password", str(error)) from None

    def _globs(self, user: str, verb: str, value: Any) -> Iterator[str]:
        if not isinstance(value, list):
            raise self._error(user, verb, f"write it as a list: {verb} = [...]")
        known = {"admin": _ADMIN, "titanic": _TITANIC}.get(verb)
        for glob in value:
            if not isinstance(glob, str) or not glob or not glob.isprintable():
                raise self._error(user, verb, "each item is a text, with at least one character")
            if known and glob not in known and "*" not in glob:
                raise self._error(
                    user, verb, f"{glob!r} does not exist{_meant(glob, known)}; it is one of"
                    f" {', '.join(known)}",
                )  # fmt: skip
            yield glob

    def _check_unique(self, users: Mapping[str, User]) -> None:
        owners: dict[tuple[str, str], str] = {}
        anonymous = ""
        for user in users.values():
            for kind, value in sorted(user.credentials):
                first = owners.setdefault((kind, value), user.name)
                if first != user.name:
                    raise self._error(user.name, kind, f"the user {first!r} has it as well")
            if user.anonymous and anonymous:
                raise self._error(user.name, "anonymous", f"the user {anonymous!r} has it as well")
            anonymous = anonymous or (user.name if user.anonymous else "")

    # --- quotas -----------------------------------------------------------------------------------
    def _quotas(self, rows: Mapping[str, Any]) -> dict[str, Quota]:
        return {name: self._quota(name, row) for name, row in rows.items()}

    def _quota(self, name: str, row: Any) -> Quota:
        known = Quota.__dataclass_fields__
        if not isinstance(row, dict):
            raise self._at(f"[quota.{name}]", "write it as a table")
        values: dict[str, int] = {}
        for key, value in row.items():
            if key not in known:
                raise self._at(f"[quota.{name}]", f"{key!r} does not exist{_meant(key, known)}")
            values[key] = self._amount(name, key, value)
        return Quota(**values)

    def _amount(self, quota: str, key: str, value: Any) -> int:
        if isinstance(value, str) and (match := _SIZE.fullmatch(value)):
            value = int(match[1]) << _UNITS[match[2]]
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= AMOUNT_MAX:
            raise self._at(
                f"[quota.{quota}]",
                f'{key} is a whole number of 1 to {AMOUNT_MAX}, or a size as "64M"',
            )
        return value

    # --- errors -----------------------------------------------------------------------------------
    def _table(self, value: Any, name: str) -> Mapping[str, Any]:
        if not isinstance(value, dict):
            raise self._at(name, f"write it as tables, [{name}.NAME]")
        return value

    def _known(self, row: Mapping[str, Any], known: tuple[str, ...], user: str, what: str) -> None:
        for key in row:
            if key not in known:
                raise self._error(user, key, f"there is no such {what}{_meant(key, known)}")

    def _error(self, user: str, key: str, reason: str) -> ConfigurationError:
        line = self._file.line_of(user, key) if user else 0
        at = f"line {line} of {self._file.path}" if line else self._file.path
        what = f"[user.{user}] {key}".strip() if user else key
        return ConfigurationError(f"{at}: {what}: {reason}" if what else f"{at}: {reason}")

    def _at(self, what: str, reason: str) -> ConfigurationError:
        return ConfigurationError(f"{self._file.path}: {what}: {reason}")


_SIZE: Final = re.compile(r"([0-9]{1,12})([KMG])")
_UNITS: Final = {"K": 10, "M": 20, "G": 30}


def _meant(word: str, known: Any) -> str:
    close = get_close_matches(word, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
