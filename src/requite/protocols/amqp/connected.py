"""The base of AMQP engines: one connection to RabbitMQ, its heartbeats and its end.

The shell reconnects; the engine learns of connections from `PeerJoined` and `PeerLost`. The first
message carries the negotiated settings, or a refusal (a wrong password, a virtual host that does
not exist).

Source: AMQP 0.9.1, section 4.2.7 (heartbeats); RabbitMQ, "Detecting Dead TCP Connections".
"""

from __future__ import annotations

from abc import abstractmethod
from math import inf
from typing import Final

from requite.core.liveness import HeartbeatPolicy, Liveness, absence_s
from requite.core.machine import Machine
from requite.engine import (
    Cause,
    Disconnect,
    Message,
    Peer,
    PeerJoined,
    PeerLost,
    Received,
    Send,
    Warn,
)
from requite.errors import RemoteViolation
from requite.protocols.amqp import methods
from requite.protocols.amqp.methods import CONNECTION, Blocked, Closed, Heard, Tuned

WORK: Final = methods.channel(1)
"""The channel of requests and replies."""

SIDE: Final = methods.channel(2)
"""The channel for methods that may fail: RabbitMQ closes a channel for any error."""

_HEARTBEAT: Final[tuple[bytes, ...]] = ()
_HINTS: Final = {
    403: "check user and password, in the URL or in `--credentials-file`; the user needs"
    " permissions for the virtual host",
    530: "the virtual host is the path of the URL; it must exist, and the user must have access",
}


class ConnectedEngine(Machine):
    """An engine with one connection to RabbitMQ."""

    def __init__(self, heartbeat: HeartbeatPolicy) -> None:
        super().__init__()
        self._heartbeat_policy = heartbeat
        self._peer: Peer | None = None
        self._agreed = False
        self._liveness: Liveness | None = None

    # --- for subclasses ---------------------------------------------------------------------------
    @abstractmethod
    def _begin(self, now: float) -> None:
        """Open channels on the new connection."""

    @abstractmethod
    def _end(self, reason: str, now: float) -> None:
        """Handle the loss of the connection."""

    @abstractmethod
    def _refused(self, reason: str, now: float) -> None:
        """Handle a refusal that RabbitMQ repeats until its operator changes something."""

    @abstractmethod
    def _hear(self, channel: bytes, heard: Heard, message: Message, now: float) -> None:
        """Handle a method on a channel; `message` has the content, if any."""

    # --- the connection ---------------------------------------------------------------------------
    def _joined(self, event: PeerJoined, now: float) -> None:
        if self._stopped or self._peer is not None:
            self._out.append(Disconnect(event.peer, "one connection is enough", Cause.DONE))
            return
        self._peer = event.peer
        self._agreed = False
        self._liveness = Liveness(self._heartbeat_policy, now)

    def _lost(self, event: PeerLost, now: float) -> None:
        if event.peer is self._peer:
            self._leave(event.reason or "the connection was closed", now)

    def _leave(self, reason: str, now: float) -> None:
        self._peer = self._liveness = None
        if self._agreed:
            self._agreed = False
            self._end(reason, now)

    def _received(self, event: Received, now: float) -> None:
        if event.peer is not self._peer:
            return
        if self._liveness is not None:
            self._liveness.heard_at = now
        for message in event.messages:
            if self._peer is None:  # the previous message ended the connection
                return
            if message:
                self._take(message, now)

    def _take(self, message: Message, now: float) -> None:
        try:
            heard = methods.decode(message[1])
        except RemoteViolation as violation:
            self._out.append(Warn("malformed", f"ignored a message from RabbitMQ: {violation}"))
            return
        if message[0] != CONNECTION:
            self._hear(message[0], heard, message, now)
            return
        if not self._agreed:
            self._entered(heard)
        match heard:
            case Tuned(heartbeat_s=heartbeat_s) if not self._agreed:  # once, first
                self._agree(heartbeat_s, now)
            case Closed(code=code, text=text) if not self._agreed:
                self._refused(_refusal(code, text), now)
            case Blocked(reason=reason):
                text = f"RabbitMQ accepts no messages for now (connection.blocked): {reason}"
                self._out.append(Warn("blocked", text))

    def _entered(self, heard: Heard) -> None:
        """Handle the end of the handshake: negotiated settings, or a refusal."""

    def _agree(self, heartbeat_s: int, now: float) -> None:
        self._agreed = True
        if heartbeat_s:
            liveness = self._heartbeat_policy.liveness
            self._liveness = Liveness(HeartbeatPolicy(heartbeat_s / 2, liveness), now)
        else:
            self._liveness = None
        self._begin(now)

    def _send(self, channel: bytes, *parts: bytes) -> None:
        self._out.append(Send(self._peer, (channel, *parts)))

    # --- heartbeats -------------------------------------------------------------------------------
    def _beat_at(self) -> float:
        """Return the next instant at which `_attend` must run."""
        return inf if self._liveness is None else self._liveness.next_at()

    def _attend(self, now: float) -> None:
        """Send a heartbeat if one is due; disconnect from a silent RabbitMQ."""
        liveness = self._liveness
        if liveness is None or now < liveness.next_at():
            return
        liveness.excuse(absence_s(liveness.next_at(), now, liveness.interval_s), now)
        if now >= liveness.gone_at():
            reason = f"RabbitMQ was silent for {now - liveness.heard_at:.1f} s"
            self._out.append(Disconnect(self._peer, reason, Cause.SILENT))
            self._leave(reason, now)
            return
        if self._agreed and now >= liveness.speak_at():
            self._out.append(Send(self._peer, _HEARTBEAT))
            liveness.spoke_at = now


def _refusal(code: int, text: str) -> str:
    hint = _HINTS.get(code)
    said = f"RabbitMQ refuses the connection: {code} {text}"
    return f"{said} ({hint})" if hint else said
