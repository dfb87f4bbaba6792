"""`Zap`: asks a handler of ZAP which peers to admit."""

from __future__ import annotations

from typing import Final

from requite.access.authentication import Authentication, AuthenticationUnavailable
from requite.access.authenticator import Authenticator
from requite.client.aio import AsyncClient
from requite.errors import CallError, ConfigurationError, RemoteViolation
from requite.framing.base import CredentialsRefused
from requite.shell import entropy
from requite.speaks.registry import read_endpoints
from requite.transport.address import is_private
from requite.zap.wire import STRING_SIZE_MAX, decode_reply, encode_request

_SCHEMES: Final = {
    "tcp": "pirate",
    "tls": "pirate+tls",
    "ipc": "pirate+ipc",
    "inproc": "pirate+inproc",
}
_ID_BITS: Final = 64
_REPLY_SIZE_MAX: Final = 1 << 16
# The call has this share of the time limit, so that its error, which says why, comes first.
_SHARE: Final = 0.9


class Zap(Authenticator):
    """A hook (`authenticate`) of one listener that asks a handler of ZAP 1.0 about each peer.

    The handler is a REP or ROUTER socket at `url`: `tcp://host:port`, `ipc:///path`, `inproc://name`
    or `tls://host:port?ca=FILE`; `tcp` may have the keys of CURVE
    (`?curve=KEY&curve_key_file=FILE`).

    - `domain`: the domain of all questions, 1 to 255 characters of ASCII.
    - `timeout`: seconds for the handler. A lost connection is retried meanwhile.
    - `at_once`: maximum number of questions at a time, each over a connection of its own; a quarter
      of them about one user.
    - `insecure`: ask over a network in clear text, too, where others could forge the answers.

    Status 200 admits a peer, and 400 refuses it. After 300, 500, a malformed reply or none, the
    peer is disconnected, and may try again. User id and metadata of the reply are ignored: the
    access file says who the user is. Raises `ConfigurationError` for settings that cannot work.
    """

    def __init__(
        self,
        url: str,
        *,
        domain: str = "requite",
        timeout: float = 10.0,
        at_once: int = 64,
        insecure: bool = False,
    ) -> None:
        super().__init__(self._consult, timeout=timeout, at_once=at_once)
        if not (domain.isascii() and 0 < len(domain) <= STRING_SIZE_MAX):
            raise ConfigurationError(
                f"the domain of ZAP must have 1 to {STRING_SIZE_MAX} characters of ASCII, not"
                f" {domain!r}"
            )
        self._domain = domain
        self._call_timeout_s = _SHARE * timeout
        pirate = _read(url, insecure=insecure)
        self._handler = f"the ZAP handler at {url.partition('?')[0]}"
        self._client = AsyncClient(
            pirate, slots=at_once, connections=at_once, message_size_max=_REPLY_SIZE_MAX
        )

    async def close(self) -> None:
        """Withdraw all questions, and disconnect from the handler."""
        await super().close()
        await self._client.close()

    async def _consult(self, peer: Authentication) -> bool:
        request_id = entropy.source.getrandbits(_ID_BITS).to_bytes(_ID_BITS // 8)
        question = encode_request(peer, self._domain, request_id)
        try:
            reply = await self._client.call(question, timeout=self._call_timeout_s)
            status, text = decode_reply(reply.frames, request_id)
        except CallError as error:
            raise AuthenticationUnavailable(f"{self._handler} did not answer: {error}") from error
        except RemoteViolation as violation:
            raise AuthenticationUnavailable(
                f"{self._handler} sent a malformed reply: {violation}"
            ) from violation
        if status == "400":
            raise CredentialsRefused(f"{self._handler} refuses it (status 400): {text!r}")
        if status != "200":
            raise AuthenticationUnavailable(
                f"{self._handler} cannot decide (status {status}): {text!r}"
            )
        return True


def _read(url: str, *, insecure: bool) -> str:
    """Return the URL as that of a Lazy Pirate, whose REQ sockets ask the questions."""
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in _SCHEMES:
        raise ConfigurationError(
            f"cannot ask a ZAP handler at {url!r}: its address is tcp://HOST:PORT, ipc:///PATH or"
            " tls://HOST:PORT?ca=FILE"
        )
    pirate = f"{_SCHEMES[scheme]}://{rest}"
    dialled = read_endpoints(pirate).only_dialled()
    is_safe = "curve" in dialled.options or all(map(is_private, dialled.addresses))
    if not (is_safe or insecure):
        raise ConfigurationError(
            f"others could forge the answers of the ZAP handler at {url}: ask it at 127.0.0.1, over"
            " a Unix socket, TLS or CURVE, or give `--insecure` (`insecure=True`)"
        )
    return pirate
