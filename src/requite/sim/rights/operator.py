"""The operator of a broker: changes its access file while it runs, and has it read again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from requite.access.file import AccessFile, parse
from requite.sim.kernel.fault_injection import choose, spare
from requite.sim.kernel.faults import FaultKind
from requite.sim.rights.knobs import RightsKnobs, UserSpec, access_file

Users = Iterable[UserSpec]
Change = Callable[[UserSpec], UserSpec | None]
"""Returns what an operator makes of a user; None removes it."""

_LOW: Final = {"requests": 1, "bytes": 2048, "requests_per_s": 3, "services": 1}
_VERBS: Final = ("call", "serve")


class Operator:
    """The access file, with the changes that are in force now."""

    def __init__(self, knobs: RightsKnobs) -> None:
        self._knobs = knobs
        self._changes: dict[int, Change] = {}
        self._number = 0

    @property
    def file(self) -> AccessFile:
        """The content of the access file."""
        return parse(access_file(self._users(), self._knobs.members))

    def _users(self) -> Iterator[UserSpec]:
        for user in self._knobs.users:
            changed: UserSpec | None = user
            for change in self._changes.values():
                changed = None if changed is None else change(changed)
            if changed is not None:
                yield changed

    def change(self, kind: str, lot: float) -> int:
        """Change the file, by the kind of a fault; return the number of the change."""
        self._number += 1
        self._changes[self._number] = _CHANGES[kind](self._knobs.users, lot)
        return self._number

    def undo(self, number: int) -> None:
        """Undo a change."""
        self._changes.pop(number, None)

    def restore(self) -> None:
        """Undo all changes."""
        self._changes.clear()


def _revoke_right(users: tuple[UserSpec, ...], lot: float) -> Change:
    """Remove one glob of one user."""
    rights = [
        (user.name, verb, glob) for user in users for verb in _VERBS for glob in getattr(user, verb)
    ]
    name, verb, glob = choose(rights, lot)

    def change(user: UserSpec) -> UserSpec:
        if user.name != name:
            return user
        left = tuple(each for each in getattr(user, verb) if each != glob)
        changed: dict[str, Any] = {verb: left}
        return replace(user, **changed)

    return change


def _remove_user(users: tuple[UserSpec, ...], lot: float) -> Change:
    removed = choose(users, lot).name
    return lambda user: None if user.name == removed else user


def _lower_quota(users: tuple[UserSpec, ...], lot: float) -> Change:
    """Lower a limit of a user, or give it one."""
    chosen, limit = choose(users, lot).name, choose([*_LOW], spare(lot))
    lowered: dict[str, Any] = {limit: _LOW[limit]}
    return lambda user: replace(user, **lowered) if user.name == chosen else user


_CHANGES: Final[Mapping[str, Callable[[tuple[UserSpec, ...], float], Change]]] = {
    FaultKind.REVOKE_RIGHT: _revoke_right,
    FaultKind.REMOVE_USER: _remove_user,
    FaultKind.LOWER_QUOTA: _lower_quota,
}
CHANGES: Final = tuple(FaultKind(kind) for kind in _CHANGES)
"""The faults that change the access file."""
