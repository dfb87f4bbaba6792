"""What the two servers of a pair say to each other, and what an operator asks: bytes and nouns.

Each message is one frame. It starts with `BSTAR`, a byte for the version and a byte for the
command; numbers are unsigned and big-endian.

Source: docs/protocols/binary-star.md, "Messages". The Guide sends the number of the state as text;
the numbers of the four states are still its own.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from requite.engine import Message
from requite.errors import RemoteViolation
from requite.protocols.binarystar.table import Role, State

VERSION: Final = 1
EPOCH_MAX: Final = 1 << 63
"""An epoch beyond this is nonsense, and refused; so the next one always fits into its field."""
TEXT_SIZE_MAX: Final = 1024
"""Bytes of UTF-8."""
NEVER_MS: Final = 0xFFFF_FFFF
MESSAGE_SIZE_MAX: Final = 2048

_MAGIC: Final = b"BSTAR"
_PREFIX_SIZE: Final = 7


class Word(NamedTuple):
    """HEARTBEAT: what a server is. Both ways between the two.

    `instance` names the process, drawn anew at each start; `number` counts what it says, and
    `heard_instance` and `heard` are the newest of these two that it has heard of the other (0:
    nothing yet): so the other knows what this word is an answer to. `wants_answer`: the other shall
    speak at once.
    """

    role: Role
    state: State
    wants_answer: bool
    interval_ms: int
    epoch: int
    instance: int
    number: int
    heard_instance: int = 0
    heard: int = 0


class Switch(NamedTuple):
    """SWITCH: end the reign `epoch` and let the other server take over. From an operator or, where
    he has asked the passive one, from that one to the active one. Void in any other epoch."""

    epoch: int


class Ask(NamedTuple):
    """ASK: an operator wants to know."""


class View(NamedTuple):
    """VIEW: the answer. `peer_state` 0: never heard; `heard_ms` the same, as `NEVER_MS`."""

    role: Role
    state: State
    serves: bool
    peer_is_silent: bool
    peer_state: int
    heard_ms: int
    interval_ms: int
    epoch: int
    trouble: str = ""


class Refused(NamedTuple):
    """REFUSED: why there was no switch."""

    reason: str


Command = Word | Switch | Ask | View | Refused

_word: Final = struct.Struct("!BBBIQQQQQ")
_switch: Final = struct.Struct("!Q")
_nothing: Final = struct.Struct("!")
_view: Final = struct.Struct("!BBBBIIQ")

_WORD, _SWITCH, _ASK, _VIEW, _REFUSED = range(1, 6)


def encode(command: Command) -> Message:
    """Return the message that stands for a command."""
    match command:
        case Word():
            return _message(_WORD, _word.pack(*command))
        case Switch():
            return _message(_SWITCH, _switch.pack(*command))
        case Ask():
            return _message(_ASK, b"")
        case View():
            flags = command.serves | command.peer_is_silent << 1
            fixed = _view.pack(command.role, command.state, flags, *command[4:8])
            return _message(_VIEW, fixed + _text(command.trouble))
        case Refused():
            return _message(_REFUSED, _text(command.reason))


def _message(code: int, rest: bytes) -> Message:
    return [_MAGIC + bytes((VERSION, code)) + rest]


def _text(text: str) -> bytes:
    """Cut a text to its limit, between characters."""
    return text.encode()[:TEXT_SIZE_MAX].decode(errors="ignore").encode()


# --- decoding -------------------------------------------------------------------------------------
def _decode_word(fields: tuple[Any, ...], _tail: bytes) -> Word:
    role, state, flags, interval_ms, epoch, *rest = fields
    return Word(_role(role), _state(state), bool(flags & 1), interval_ms, _epoch(epoch), *rest)


def _decode_switch(fields: tuple[Any, ...], _tail: bytes) -> Switch:
    return Switch(_epoch(*fields))


def _decode_ask(_fields: tuple[Any, ...], _tail: bytes) -> Ask:
    return Ask()


def _decode_view(fields: tuple[Any, ...], tail: bytes) -> View:
    role, state, flags, peer_state, heard_ms, interval_ms, epoch = fields
    peer_state = _state(peer_state) if peer_state else 0
    flagged = (bool(flags & 1), bool(flags & 2))
    times = (heard_ms, interval_ms, _epoch(epoch))
    return View(_role(role), _state(state), *flagged, peer_state, *times, _read_text(tail))


def _decode_refused(_fields: tuple[Any, ...], tail: bytes) -> Refused:
    return Refused(_read_text(tail))


_COMMANDS: Final[dict[int, tuple[str, struct.Struct, bool, Callable[..., Command]]]] = {
    _WORD: ("HEARTBEAT", _word, False, _decode_word),
    _SWITCH: ("SWITCH", _switch, False, _decode_switch),
    _ASK: ("ASK", _nothing, False, _decode_ask),
    _VIEW: ("VIEW", _view, True, _decode_view),
    _REFUSED: ("REFUSED", _nothing, True, _decode_refused),
}
"""By code: the name, the fixed fields, whether a text follows them, and what makes a noun of it."""


def decode(message: Message) -> Command:
    """Decode a message, or raise `RemoteViolation`, which names what is wrong with it."""
    if len(message) != 1:
        raise RemoteViolation(f"a message of a pair has one frame, not {len(message)}")
    frame = message[0]
    if frame[:5] != _MAGIC:
        raise RemoteViolation(f"what a pair says starts with {_MAGIC!r}, not with {frame[:5]!r}")
    if len(frame) < _PREFIX_SIZE:
        raise RemoteViolation(f"a message of a pair has at least {_PREFIX_SIZE} bytes")
    version, code = frame[5], frame[6]
    if version != VERSION:
        raise RemoteViolation(f"it speaks version {version} of the pair's wire, and not {VERSION}")
    if code not in _COMMANDS:
        raise RemoteViolation(f"there is no command {code:#04x}")
    name, fixed, has_text, make = _COMMANDS[code]
    rest = frame[_PREFIX_SIZE:]
    size_max = fixed.size + (TEXT_SIZE_MAX if has_text else 0)
    if not fixed.size <= len(rest) <= size_max:
        raise RemoteViolation(f"{name}: {len(rest)} bytes follow the command, not {fixed.size}")
    return make(fixed.unpack_from(rest), rest[fixed.size :])


def _role(number: int) -> Role:
    try:
        return Role(number)
    except ValueError:
        raise RemoteViolation(f"there is no role {number}") from None


def _state(number: int) -> State:
    try:
        return State(number)
    except ValueError:
        raise RemoteViolation(f"there is no state {number}") from None


def _epoch(number: int) -> int:
    if number > EPOCH_MAX:
        raise RemoteViolation(f"an epoch is at most {EPOCH_MAX}, not {number}")
    return number


def _read_text(text: bytes) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        raise RemoteViolation("a text that is not UTF-8") from error
