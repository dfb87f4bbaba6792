"""The server's framing of an AMQP connection: handshake, frames, and content."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from requite.errors import RemoteViolation
from requite.framing.base import Message
from requite.principal import Credential
from requite.protocols.amqp import methods
from requite.protocols.amqp.methods import CONNECTION
from requite.sim.rabbitmq import server_methods

_OPENING: Final = b"AMQP\0\0\x09\x01"
_METHOD, _HEADER, _BODY, _HEARTBEAT = 1, 2, 3, 8
_HEAD_SIZE: Final = 7
_END: Final = b"\xce"


class ServerFraming:
    """The framing of one connection. `frame_size` and `heartbeat_s` are proposed to the client."""

    def __init__(self, frame_size: int, heartbeat_s: int) -> None:
        self.ready = False
        self.refusal = ""
        self.peer_identity = b""
        self.login: None = None  # the engine has the passwords
        self.peer_credential: Credential | None = None
        self.peer_features: frozenset[str] = frozenset()
        self.farewell = ""
        self._frame_size = frame_size
        self._heartbeat_s = heartbeat_s
        self._data = b""
        self._is_greeted = False
        self._said: list[bytes] = []
        self._contents: dict[bytes, Message] = {}  # incomplete messages, by channel
        self._sizes: dict[bytes, int] = {}
        self._steps: dict[bytes, Callable[[bytes], None]] = {
            methods.CONNECTION_START_OK: self._start,
            methods.CONNECTION_TUNE_OK: lambda _method: None,
            methods.CONNECTION_OPEN: self._open,
            methods.CONNECTION_CLOSE: self._close,
            methods.CONNECTION_CLOSE_OK: lambda _method: None,
        }

    # --- the framing ------------------------------------------------------------------------------
    def opening(self) -> bytes:
        """Return nothing: the client sends first."""
        return b""

    def receive(self, chunk: bytes) -> list[Message]:
        """Decode bytes; return the complete messages."""
        if self.farewell:
            return []
        self._data += chunk
        if not self._is_greeted and not self._greet():
            return []
        messages: list[Message] = []
        while len(self._data) >= _HEAD_SIZE:
            size = int.from_bytes(self._data[3:7], "big")
            end = _HEAD_SIZE + size
            if len(self._data) <= end:
                break
            if self._data[end : end + 1] != _END or end + 1 > self._frame_size:
                raise RemoteViolation("a frame that is none")
            kind, channel, payload = self._data[0], self._data[1:3], self._data[_HEAD_SIZE:end]
            self._data = self._data[end + 1 :]
            self._take(kind, channel, payload, messages)
        return messages

    def refuse(self, _status: str, /) -> None:
        """Do nothing: the protocol has no words for it."""

    def output(self) -> bytes:
        """Return the bytes of handshake and close that are to be sent."""
        said, self._said = self._said, []
        return b"".join(said)

    def encode(self, message: Sequence[bytes], out: list[bytes]) -> int:
        """Append the frames of a message."""
        before = len(out)
        if not message:
            out.append(_frame(_HEARTBEAT, CONNECTION, b""))
        else:
            out.append(_frame(_METHOD, message[0], message[1]))
        if len(message) > 2:
            out.append(_frame(_HEADER, message[0], message[2]))
            step = self._frame_size - _HEAD_SIZE - 1
            body = message[3]
            pieces = (body[at : at + step] for at in range(0, len(body), step))
            out += (_frame(_BODY, message[0], piece) for piece in pieces)
        return sum(map(len, out[before:]))

    def closing(self) -> bytes:
        """Return nothing: the server has already sent the reason."""
        return b""

    @property
    def mid_message(self) -> bool:
        """Whether a message is incomplete."""
        return bool(self._data or self._contents)

    @property
    def partial_size(self) -> int:
        """The bytes of an incomplete frame."""
        return len(self._data)

    def at_end(self) -> None:
        """Accept the end of the stream at any time."""

    # --- frames -----------------------------------------------------------------------------------
    def _greet(self) -> bool:
        if len(self._data) < len(_OPENING):
            return False
        if not self._data.startswith(_OPENING):
            raise RemoteViolation("this is not AMQP 0.9.1")
        self._data = self._data[len(_OPENING) :]
        self._is_greeted = True
        self._send_method(server_methods.start())
        return True

    def _take(self, kind: int, channel: bytes, payload: bytes, messages: list[Message]) -> None:
        match kind:
            case 8:
                messages.append([])
            case 1 if channel == CONNECTION:
                self._steps[payload[:4]](payload)
            case 1 if payload[:4] == methods.BASIC_PUBLISH:
                self._contents[channel] = [channel, payload]
            case 1:
                messages.append([channel, payload])
            case 2:
                self._contents[channel].append(payload)
                self._sizes[channel] = int.from_bytes(payload[4:12], "big")
                self._contents[channel].append(b"")
                self._maybe_whole(channel, messages)
            case 3:
                self._contents[channel][3] += payload
                self._maybe_whole(channel, messages)
            case _:
                raise RemoteViolation(f"a frame of type {kind}")

    def _maybe_whole(self, channel: bytes, messages: list[Message]) -> None:
        if len(self._contents[channel][3]) >= self._sizes[channel]:
            del self._sizes[channel]
            messages.append(self._contents.pop(channel))

    # --- handshake and close ----------------------------------------------------------------------
    def _start(self, _method: bytes) -> None:
        self._send_method(server_methods.tune(self._frame_size, self._heartbeat_s))

    def _open(self, _method: bytes) -> None:
        self._send_method(methods.CONNECTION_OPEN_OK + b"\0")
        self.ready = True

    def _close(self, _method: bytes) -> None:
        self._send_method(methods.CONNECTION_CLOSE_OK)
        self.farewell = "the client has closed the connection"

    def _send_method(self, method: bytes) -> None:
        self._said.append(_frame(_METHOD, CONNECTION, method))


def _frame(kind: int, channel: bytes, payload: bytes) -> bytes:
    return bytes((kind,)) + channel + len(payload).to_bytes(4, "big") + payload + _END
