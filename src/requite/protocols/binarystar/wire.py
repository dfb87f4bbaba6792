"""Commands between the servers of a pair, and between operators and servers, and their encoding.

Each message is one frame. It starts with `BSTAR`, a byte for the version and a byte for the
command; numbers are unsigned and big-endian.

Source: docs/protocols/binary-star.md, "Messages". The Guide sends the number of the state as text;
its numbers of the four states are used here too.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from requite.engine import Message
from requite.errors import RemoteViolation
from requite.protocols.binarystar.table import PairRole, State

VERSION: Final = 1
EPOCH_MAX: Final = 1 << 63
"""Larger epochs are refused, so that the next one always fits into its field."""
EPOCH_JUMP_MAX: Final = 1 << 20
"""A heartbeat whose epoch is newer by more is refused: an epoch is one take-over."""
TEXT_SIZE_MAX: Final = 1024
"""Bytes of UTF-8."""
NEVER_MS: Final = 0xFFFF_FFFF
MESSAGE_SIZE_MAX: Final = 2048

_MAGIC: Final = b"BSTAR"
_PREFIX_SIZE: Final = 7


class Word(NamedTuple):
    """HEARTBEAT: the state of a server, sent by both.

    `instance` identifies the process, at random per start; `number` counts its heartbeats.
    `heard_instance` and `heard` are the instance and number of the newest heartbeat received from
    the other (0: none yet), so that the other knows which of its heartbeats this answers.
    `wants_answer`: the other must send a heartbeat at once.
    """

    role: PairRole
    state: State
    wants_answer: bool
    interval_ms: int
    epoch: int
    instance: int
    number: int
    heard_instance: int = 0
    heard: int = 0


class Switch(NamedTuple):
    """SWITCH: end `epoch` by letting the other server take over; refused in any other epoch. Sent
    by an operator; a passive server forwards it to the active one."""

    epoch: int


class Ask(NamedTuple):
    """ASK: an operator requests a VIEW."""


class View(NamedTuple):
    """VIEW: the answer to ASK. If the peer was never heard, `peer_state` is 0 and `heard_ms` is
    `NEVER_MS`."""

    role: PairRole
    state: State
    serves: bool
    peer_is_silent: bool
    peer_state: int
    heard_ms: int
    interval_ms: int
    epoch: int
    trouble: str = ""


class Refused(NamedTuple):
    """REFUSED: the reason why a SWITCH was refused."""

    reason: str


Command = Word | Switch | Ask | View | Refused

_word: Final = struct.Struct("!BBBIQQQQQ")
_switch: Final = struct.Struct("!Q")
_nothing: Final = struct.Struct("!")
_view: Final = struct.Struct("!BBBBIIQ")

_WORD, _SWITCH, _ASK, _VIEW, _REFUSED = range(1, 6)


def encode(command: Command) -> Message:
    """Encode a command."""
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
    """Encode a text, truncated to its limit between characters."""
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
"""By code: name, fixed fields, whether a text follows them, and decoder."""


def decode(message: Message) -> Command:
    """Decode a message, or raise `RemoteViolation`."""
    if len(message) != 1:
        raise RemoteViolation(
            f"a message between servers of a pair must have one frame, not {len(message)}"
        )
    frame = message[0]
    if frame[:5] != _MAGIC:
        raise RemoteViolation(
            f"a message between servers of a pair must start with {_MAGIC!r}, not {frame[:5]!r}"
        )
    if len(frame) < _PREFIX_SIZE:
        raise RemoteViolation(
            f"a message between servers of a pair must have at least {_PREFIX_SIZE} bytes"
        )
    version, code = frame[5], frame[6]
    if version != VERSION:
        raise RemoteViolation(
            f"the peer uses version {version} of the protocol between servers of a pair;"
            f" this server uses {VERSION}"
        )
    if code not in _COMMANDS:
        raise RemoteViolation(f"unknown command {code:#04x}")
    name, fixed, has_text, make = _COMMANDS[code]
    rest = frame[_PREFIX_SIZE:]
    size_max = fixed.size + (TEXT_SIZE_MAX if has_text else 0)
    if not fixed.size <= len(rest) <= size_max:
        raise RemoteViolation(
            f"{name}: {len(rest)} bytes follow the command byte; {fixed.size} are required"
        )
    return make(fixed.unpack_from(rest), rest[fixed.size :])


def _role(number: int) -> PairRole:
    try:
        return PairRole(number)
    except ValueError:
        raise RemoteViolation(f"unknown role {number}") from None


def _state(number: int) -> State:
    try:
        return State(number)
    except ValueError:
        raise RemoteViolation(f"unknown state {number}") from None


def _epoch(number: int) -> int:
    if number > EPOCH_MAX:
        raise RemoteViolation(f"the epoch {number} is larger than the maximum, {EPOCH_MAX}")
    return number


def _read_text(text: bytes) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        raise RemoteViolation("the text is not UTF-8") from error
