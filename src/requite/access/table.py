"""`Access`: who a peer is, by its credential, and what it may do. See `requite.access`."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from requite.access.file import AccessFile, User, read
from requite.access.passwords import Passwords
from requite.errors import ConfigurationError
from requite.framing.base import CredentialsRefused
from requite.principal import INSIDE, VERBS, Credential, Principal, Rights, Verb
from requite.protocols.majordomo.permissions import (
    RESERVED,
    SUBMIT,
    UNDER,
    Right,
    rights_to_call,
    rights_to_serve,
)
from requite.protocols.majordomo.wire import MMI_PREFIX


class Decision(NamedTuple):
    """Whether a user may do something, and why, in words; `line` of the file decides (0: none)."""

    allowed: bool
    why: str
    line: int = 0


class Access:
    """The users of a listener. All its connections of one user share one `Principal`.

    `load` replaces the users; principals of users that remain keep their identity, so that open
    connections get their new rights. Not thread-safe, except for `changed_file` and
    `check_password`: call it on the listener's event loop.
    """

    def __init__(self, file: AccessFile) -> None:
        self._principals: dict[str, Principal] = {}
        self._path: Path | None = None
        self._stamp: object = None
        self.load(file)

    @classmethod
    def read(cls, path: str | Path) -> Access:
        """Read an access file. Raises `ConfigurationError`, with line and key."""
        path = Path(path)
        stamp = _stamp(path)
        access = cls(read(path))
        access._path, access._stamp = path, stamp
        return access

    def changed_file(self, *, anyway: bool = False) -> AccessFile | None:
        """Return the content of the file if it has changed since it was read (or `anyway`).

        May run in a thread, in one at a time. Raises `ConfigurationError`: once for each bad
        content, and each time for a file that cannot be read.
        """
        if self._path is None:
            return None
        stamp = _stamp(self._path)
        if stamp == self._stamp and not anyway:
            return None
        try:
            file = read(self._path)
        except ConfigurationError as error:
            if not isinstance(error.__cause__, OSError):
                self._stamp = stamp
            raise
        self._stamp = stamp
        return file

    def load(self, file: AccessFile) -> list[str]:
        """Replace the users; return the names of those whose rights changed or who are gone."""
        changed = [name for name in self._principals if name not in file.users]
        for name in changed:
            self._principals.pop(name).revoke()
        for name, user in file.users.items():
            principal = self._principals.get(name)
            if principal is None:
                self._principals[name] = Principal(name, user.rights, user.quota)
            elif principal.grant(user.rights, user.quota):
                changed.append(name)
        self._file = file
        self._by_credential = {
            credential: user.name for user in file.users.values() for credential in user.credentials
        }
        self._anonymous = next((user.name for user in file.users.values() if user.anonymous), "")
        self._passwords = Passwords(
            {user.name: user.passwords for user in file.users.values() if user.passwords}
        )
        return changed

    # --- for listeners ----------------------------------------------------------------------------
    def identify(self, credential: Credential | None, peer_name: str) -> Principal:
        """Return the owner of a connection. Raises `CredentialsRefused` if no user has it."""
        if credential is not None and credential.kind == "inside":
            return INSIDE
        name = self._user_of(credential)
        if not name:
            whose = "no credential" if credential is None else f"the credential {credential}"
            raise CredentialsRefused(
                f"{peer_name} has {whose}, which no user of {self._file.path} has", credential
            )
        return self._principals[name]

    def _user_of(self, credential: Credential | None) -> str:
        if credential is None:
            return self._anonymous
        kind, names = credential
        if kind == "plain":  # the hash that has matched may have been removed
            user = self._file.users.get(names[0])
            marks = () if user is None else tuple(each.mark for each in user.passwords)
            return names[0] if names[-1] in marks else ""
        found = (self._by_credential.get((kind, name)) for name in names)
        # A Unix socket tells the user id of every peer, whether or not it is meant to matter.
        return next(filter(None, found), self._anonymous if kind == "local" else "")

    def check_password(self, user: str, password: str) -> Credential | None:
        """Return what a password proves; None if it is wrong. Takes some 50 ms, and may run in a
        thread."""
        return self._passwords.check(user, password)

    def recall_password(self, user: str, password: str) -> Credential | None:
        """Return what a password has proven before, in microseconds; None if it has not."""
        return self._passwords.recall(user, password)

    def admits_key(self, key: str) -> bool:
        """Whether a user has this public key of CURVE."""
        return ("curve", key) in self._by_credential

    def principal_named(self, name: str) -> Principal:
        """Return the principal of a user; a revoked one if there is no such user."""
        return self._principals.get(name) or Principal(name, Rights(), is_revoked=True)

    @property
    def has_passwords(self) -> bool:
        """Whether any user has a password."""
        return any(user.passwords for user in self._file.users.values())

    @property
    def has_anonymous(self) -> bool:
        """Whether peers without a credential are a user."""
        return bool(self._anonymous)

    # --- for people -------------------------------------------------------------------------------
    @property
    def users(self) -> list[User]:
        """The users, in the order of the file."""
        return list(self._file.users.values())

    def decide(self, user: str, verb: Verb, name: str) -> Decision:
        """Say whether a broker lets a user do something, and which line decides.

        Raises `ConfigurationError` for an unknown user or verb.
        """
        if verb not in VERBS:
            raise ConfigurationError(f"there is no verb {verb!r}; it is one of {', '.join(VERBS)}")
        found = self._file.users.get(user)
        if found is None:
            known = ", ".join(self._file.users) or "it has no users"
            raise ConfigurationError(f"{self._file.path} has no user {user!r}: {known}")
        service = name.encode(errors="surrogateescape")
        if verb == "serve" and service.startswith(MMI_PREFIX):
            return Decision(False, RESERVED)
        rights = _rights_for(verb, service)
        if not rights:
            return Decision(True, f"every user may {verb} it")
        is_submission = verb == "call" and service == SUBMIT
        too = "; it also needs `call` of the service that it names" if is_submission else ""
        for by, what in rights:
            if glob := found.rights.match(by, what.decode(errors="replace")):
                line = self._file.line_of(user, by, glob)
                return Decision(True, f"{glob!r} in its {by} matches{too}", line)
        by, what = rights[0]
        given = ", ".join(getattr(found.rights, by))
        why = f"no glob of its {by} matches: {given}" if given else f"it has no {by}"
        if by != verb:
            why = f"it needs the right to {by} {what.decode()!r}, and {why}"
        if verb == "call" and service == UNDER:
            why = f"{why}; `pool` is enough for a request that names one of its pools"
        return Decision(False, why, self._file.line_of(user, by))


def _rights_for(verb: Verb, name: bytes) -> list[Right]:
    """Return the rights of which a user needs one."""
    if verb == "call":
        return rights_to_call(name)
    return rights_to_serve(name) if verb == "serve" else [(verb, name)]


def _stamp(path: Path) -> tuple[int, ...] | None:
    """Return a value that changes with the content, the owner and the mode of a file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_uid, found.st_mode
