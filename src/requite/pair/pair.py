"""`Pair`: one server of a fail-over pair (Binary Star), on an event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final, Literal

from requite.access.exposure import check_exposure
from requite.errors import ConfigurationError, LocalViolation, PairFailed
from requite.pair.ends import listen_at, stay_connected_to
from requite.protocols.binarystar.peer import BinaryStarPeer
from requite.protocols.binarystar.policy import HEARTBEAT_S_DEFAULT, BinaryStarPolicy
from requite.protocols.binarystar.reasons import lonely, word_for
from requite.protocols.binarystar.table import PairRole, State
from requite.protocols.binarystar.view import PairView, SwitchOver, Vote
from requite.shell import clock, entropy
from requite.shell.aio import AioShell
from requite.shell.connections import Connections
from requite.shell.daemon import Daemon
from requite.shell.link import LinkLimits

_INSTANCES: Final = 1 << 64
# The system accepts connections for a paused process, which then does not answer.
_HANDSHAKE_S_MIN: Final = 1.0

_log = logging.getLogger("requite.pair")


class Pair(Daemon):
    """One of two servers: one serves, the other takes over if it fails.

        pair = Pair("primary", bind="tcp://10.0.0.1:5560", peer="tcp://10.0.0.2:5560")
        async with pair:
            ...
            if pair.vote():  # for every request of a client
                answer(request)
            else:
                disconnect(client)  # it reconnects to the other server

    Give both servers the same `heartbeat`, and a dedicated network for `bind` and `peer`. Check
    `serves` again before sending an answer that took long: this process may have been paused, and
    the other server may have taken over.

    - `role`: "primary" or "backup"; one of each, and never changed.
    - `bind`: the address to listen at for the other server and for `requite pair`:
      `tcp://host:port` (port 0: a free one), `ipc:///path`, or
      `tls://host:port?certificate=FILE&key=FILE&ca=FILE`, which accepts only servers and operators
      with a certificate signed by `ca`.
    - `peer`: the address where the other server listens; over TLS with this server's own
      certificate, too.
    - `heartbeat`: the interval in seconds. The other server takes over when a client sends it a
      request and it has heard no heartbeat for two intervals.
    - `insecure`: listen at addresses that other machines reach although this end does not know who
      connects. Otherwise `bind` is a loopback address or a Unix socket, or verifies certificates.
    - `on_change`: called with a `PairView` after each change, on the event loop; it must be quick.
      Its exceptions are logged and otherwise ignored.

    Raises `ConfigurationError` for invalid addresses and settings.
    """

    def __init__(
        self,
        role: PairRole | Literal["primary", "backup"],
        *,
        bind: str,
        peer: str,
        heartbeat: float = HEARTBEAT_S_DEFAULT,
        insecure: bool = False,
        on_change: Callable[[PairView], object] | None = None,
    ) -> None:
        policy = BinaryStarPolicy(read_role(role), heartbeat)
        if bind == peer:
            raise ConfigurationError(f"a server cannot be its own peer: both are {bind}")
        instance = entropy.source.randrange(1, _INSTANCES)
        self._engine = self._make_engine(policy, instance, lambda: self._shell.dial_trouble)
        self._listeners = [] if on_change is None else [on_change]
        self._logged = ("", logging.NOTSET)
        self._is_owned = False
        self._failed = asyncio.Event()
        listen = [listen_at(bind)]
        check_exposure(listen, is_guarded=False, insecure=insecure)
        self._shell = AioShell(
            self._engine,
            Connections(
                listen=listen,
                keep=[stay_connected_to(peer)],
                limits=LinkLimits(handshake_timeout_s=max(_HANDSHAKE_S_MIN, policy.failover_s)),
            ),
            deliver=self._deliver,
            logger="requite.pair",
        )

    def __repr__(self) -> str:
        return f"<Pair {self._engine.policy.role.name.lower()}: {self._engine.state.name.lower()}>"

    # --- whether to serve -------------------------------------------------------------------------
    @property
    def serves(self) -> bool:
        """Whether this server may answer clients at this moment. Reads the clock."""
        return clock.now() < self._engine.serves_until

    def vote(self) -> bool:
        """Report a client's request, and return whether to serve it.

        This makes a passive server active if the other has been silent for two intervals. Raises
        `PairFailed` if the pair has failed.
        """
        if clock.now() >= self._engine.serves_until:
            self._check()
            self._shell.submit(Vote())
        return clock.now() < self._engine.serves_until

    # --- for operators ----------------------------------------------------------------------------
    @property
    def view(self) -> PairView:
        """This server's view of the pair."""
        return self._engine.view(clock.now())

    @property
    def trouble(self) -> str:
        """Why this server would neither serve nor take over, as text; "" if it would. A server that
        waits for the other one, or was just paused, does neither."""
        view = self.view
        if view.serves or view.state is State.PASSIVE:
            return ""
        return view.trouble or f"the {view.role.name.lower()} is {word_for(view.state)}"

    @property
    def role(self) -> PairRole:
        """The configured role."""
        return self._engine.policy.role

    @property
    def endpoint(self) -> str:
        """The address where it listens for the other server, with the actual port; "" before
        `start`."""
        return next(map(str, self._shell.addresses), "")

    def switch(self) -> None:
        """Switch the active server: to the other one, or to this one if the other is active.

        The switch takes a round trip; `on_change` and `view` report it. If the other server is
        silent, this one becomes active. Raises `LocalViolation` with the reason if a switch is
        not possible now, and `PairFailed`.
        """
        self._check()
        if reason := self._engine.objection(clock.now()):
            raise LocalViolation(f"cannot switch: {reason}")
        self._shell.submit(SwitchOver())

    def belong_to(self, on_change: Callable[[PairView], object]) -> None:
        """Hand start and stop of this pair over to a broker, whose `on_change` is called as well.
        Raises `LocalViolation` if the pair has been started, or has an owner."""
        if self._started or self._is_owned:
            raise LocalViolation(
                "a broker starts its pair itself: pass a pair that has not been started and"
                " that no other broker uses"
            )
        self._is_owned = True
        self._listeners.append(on_change)

    async def until_failed(self) -> PairFailed:
        """Wait until the pair has failed, and return the error, which needs an operator."""
        await self._failed.wait()
        return PairFailed(self._engine.trouble)

    # --- start and stop ---------------------------------------------------------------------------
    async def start(self) -> str:
        """Listen, dial, and start heartbeats; return `endpoint`. Raises `TransportError` if the
        address cannot be bound, `LocalViolation` on a second call."""
        self._start_once()
        await self._shell.listen_all()
        self._shell.start()
        return self.endpoint

    async def drain(self) -> None:
        """Let the other server take over if this one is active and the other is alive, waiting at
        most two intervals; then close."""
        await self._shell.drain()

    async def close(self) -> None:
        """Stop at once. The other server takes over after two intervals, when clients call it."""
        self._engine.end()
        await self._shell.close()

    # --- inside -----------------------------------------------------------------------------------
    def _make_engine(
        self, policy: BinaryStarPolicy, instance: int, why_unheard: Callable[[], str]
    ) -> BinaryStarPeer:
        """Return the engine; simulations return others."""
        return BinaryStarPeer(policy, instance=instance, why_unheard=why_unheard)

    def _check(self) -> None:
        if self._engine.state is State.FAILED:
            raise PairFailed(self._engine.trouble)

    def _deliver(self, _token: Any, view: PairView) -> None:
        self._report(view)
        if view.state is State.FAILED:
            self._failed.set()
        for listener in self._listeners:
            try:
                listener(view)
            except Exception:  # the application's error must not stop the heartbeats
                _log.exception("on_change failed")

    def _report(self, view: PairView) -> None:
        """Log a change, unless the same sentence was logged at this level or a higher one."""
        is_bad = view.peer_is_silent or view.state is State.FAILED
        level = logging.WARNING if is_bad else logging.INFO
        sentence, (before, level_before) = _sentence(view), self._logged
        if sentence == before and level <= level_before:
            return
        self._logged = (sentence, level)
        is_unheard = view.state is not State.FAILED and view.trouble
        reason = f" ({view.trouble})" if is_unheard else ""
        advice = lonely(view.state, view.peer_is_silent)
        ending = f"; {advice}" if advice else ""
        _log.log(level, "%s%s%s", sentence, reason, ending, extra=_facts(view))


def read_role(role: PairRole | str) -> PairRole:
    """Return the role of that name. Raises `ConfigurationError`."""
    try:
        return role if isinstance(role, PairRole) else PairRole[role.upper()]
    except (KeyError, AttributeError):
        raise ConfigurationError(f"a role must be 'primary' or 'backup', not {role!r}") from None


def _sentence(view: PairView) -> str:
    own, other = view.role.name.lower(), view.role.other.name.lower()
    if view.peer_state is None:
        peer = "has not sent a heartbeat yet"
    else:
        verb = "is silent, and was" if view.peer_is_silent else "is"
        peer = f"{verb} {word_for(view.peer_state)}"
    return f"the {own} is {word_for(view.state)}, epoch {view.epoch}; the {other} {peer}"


def _facts(view: PairView) -> dict[str, object]:
    peer = "unknown" if view.peer_state is None else view.peer_state.name.lower()
    return {"epoch": view.epoch, "peer": peer, "peer_is_silent": view.peer_is_silent}
