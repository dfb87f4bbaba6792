"""`Authenticator`: a hook that may refuse what the access file admits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

import requite
from requite.access import Authentication, AuthenticationUnavailable
from requite.access.authentication import Authenticate
from requite.access.authenticator import Authenticator
from requite.access.file import parse
from requite.access.guard import make_guard
from requite.access.table import Access
from requite.chronicle import Kind
from requite.errors import ConfigurationError, RemoteViolation
from requite.examples import echo
from requite.framing.base import CredentialsRefused
from requite.principal import Credential
from requite.queue import Queue
from requite.sp import Device

PEER = Authentication("shop", Credential("plain", ("shop",)), "tcp://192.0.2.7:9")
SECRET = "hunter2"


async def decision(hook: Authenticate, peer: Authentication = PEER) -> RemoteViolation | None:
    """Return what an authenticator answers."""
    answered: asyncio.Future[RemoteViolation | None] = asyncio.get_running_loop().create_future()
    Authenticator(hook, timeout=0.05).ask(peer, answered.set_result)
    async with asyncio.timeout(20):
        return await answered


async def test_only_true_admits() -> None:
    for said in (True, False, None, 1, "no"):

        async def hook(_peer: Authentication, said: object = said) -> bool:
            return said  # type: ignore[return-value]

        refusal = await decision(hook)
        if said is True:
            assert refusal is None
        else:
            assert isinstance(refusal, CredentialsRefused)


async def test_the_hook_learns_who_it_is() -> None:
    seen: list[Authentication] = []

    async def hook(peer: Authentication) -> bool:
        seen.append(peer)
        return True

    assert await decision(hook) is None
    assert seen == [PEER]


@pytest.mark.parametrize(
    ("credential", "mechanism"),
    [
        (None, "NULL"),
        (Credential("tls", ("CN=shop",)), "TLS"),
        (Credential("local", ("7",)), "LOCAL"),
        (Credential("plain", ("shop",)), "PLAIN"),
        (Credential("curve", ("key",)), "CURVE"),
    ],
)
def test_the_mechanism_is_the_one_of_the_credential(
    credential: Credential | None, mechanism: str
) -> None:
    assert Authentication("shop", credential, "").mechanism == mechanism


async def test_a_hook_that_fails_admits_nobody_and_its_text_is_not_shown() -> None:
    async def hook(_peer: Authentication) -> bool:
        raise ValueError(f"cannot connect to ldap://admin:{SECRET}@host")

    refusal = await decision(hook)
    assert isinstance(refusal, AuthenticationUnavailable)
    assert "raised ValueError in test_authentication.py, line" in str(refusal)
    assert SECRET not in str(refusal)


async def test_a_hook_may_say_why() -> None:
    async def hook(_peer: Authentication) -> bool:
        raise CredentialsRefused("the account is locked")

    assert str(await decision(hook)) == "the account is locked"


async def test_a_hook_that_is_no_coroutine_function_admits_nobody() -> None:
    refusal = await decision(lambda _peer: True)  # type: ignore[arg-type, return-value]
    assert isinstance(refusal, AuthenticationUnavailable)


async def test_a_hook_has_a_time_limit() -> None:
    async def hook(_peer: Authentication) -> bool:
        await asyncio.Event().wait()
        return True

    refusal = await decision(hook)
    assert isinstance(refusal, AuthenticationUnavailable)
    assert "did not answer within 0.05 s" in str(refusal)


async def test_a_timeout_of_the_hook_itself_is_a_failure_of_the_hook() -> None:
    async def hook(_peer: Authentication) -> bool:
        raise TimeoutError

    assert "raised TimeoutError" in str(await decision(hook))


class Gate:
    """A hook that holds every peer, and counts them."""

    def __init__(self) -> None:
        self.inside = 0
        self.most = 0
        self.open = asyncio.Event()

    async def __call__(self, _peer: Authentication) -> bool:
        self.inside += 1
        self.most = max(self.most, self.inside)
        try:
            await self.open.wait()
        finally:
            self.inside -= 1
        return True


async def _until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await _turns(1)


async def _turns(number: int) -> None:
    """Let the event loop run."""
    for _ in range(number):
        await asyncio.sleep(0)


async def test_a_limited_number_of_peers_is_asked_about_at_a_time() -> None:
    gate, answers = Gate(), []
    authenticator = Authenticator(gate, at_once=2)
    for number in range(5):
        authenticator.ask(PEER._replace(user=f"user {number}"), answers.append)
    await _until(lambda: gate.inside == 2)
    await _turns(10)
    assert answers == []
    gate.open.set()
    await _until(lambda: len(answers) == 5)
    assert answers == [None] * 5
    assert gate.most == 2


async def test_the_connections_of_one_user_do_not_delay_another() -> None:
    gate, answers = Gate(), []
    authenticator = Authenticator(gate, at_once=8)
    for _ in range(100):
        authenticator.ask(PEER, answers.append)
    await _until(lambda: gate.inside == 2)
    await _turns(10)
    assert gate.inside == 2
    authenticator.ask(PEER._replace(user="other"), answers.append)
    await _until(lambda: gate.inside == 3)
    await authenticator.close()
    assert answers == []


async def test_a_withdrawn_question_makes_room_and_gets_no_answer() -> None:
    gate, answers = Gate(), []
    authenticator = Authenticator(gate, at_once=1)
    withdraw = authenticator.ask(PEER, answers.append)
    await _until(lambda: gate.inside == 1)
    withdraw()
    await _until(lambda: gate.inside == 0)
    gate.open.set()
    authenticator.ask(PEER, answers.append)
    await _until(lambda: answers)
    assert answers == [None]


async def test_closing_ends_the_hooks() -> None:
    gate, answers = Gate(), []
    authenticator = Authenticator(gate, at_once=1)
    for _ in range(3):
        authenticator.ask(PEER, answers.append)
    await _until(lambda: gate.inside == 1)
    await authenticator.close()
    assert (gate.inside, answers) == (0, [])


@pytest.mark.parametrize("limits", [{"timeout": 0}, {"timeout": -1.0}, {"at_once": 0}])
def test_limits_are_positive(limits: dict[str, int]) -> None:
    async def hook(_peer: Authentication) -> bool:
        return True

    with pytest.raises(ConfigurationError, match="must be positive"):
        Authenticator(hook, **limits)


# --- in a listener --------------------------------------------------------------------------------
async def test_every_answer_is_recorded() -> None:
    rows: list[tuple[Kind, str, str]] = []

    async def hook(peer: Authentication) -> bool:
        return peer.address == "here"

    access = Access(parse(b"[user.shop]\nlocal = 7"))
    guard = make_guard(access, hook, lambda: None, record=lambda *row: rows.append(row))
    assert guard is not None
    credential = Credential("local", ("7",))
    assert guard.identify(credential, "here", None).name == "shop"
    guard.identified(guard.access.principal_named("shop"), credential, "here", "")
    assert rows == [], "the hook has not answered yet"
    ask, answers = guard.ask, []
    assert ask is not None
    for place in ("here", "there"):
        ask(Authentication("shop", credential, place), answers.append)
    await _until(lambda: len(answers) == 2)
    assert rows == [
        (Kind.ADMITTED, "shop", "local:7 from here, by the authenticate hook, too"),
        (Kind.DENIED, "shop", "the authenticate hook refuses it"),
    ]


@contextmanager
def refused() -> Iterator[None]:
    with pytest.raises(ConfigurationError, match="`authenticate` needs an access file"):
        yield


def test_a_hook_needs_an_access_file() -> None:
    async def hook(_peer: Authentication) -> bool:
        return True

    with refused():
        requite.Broker("tcp://127.0.0.1:0", authenticate=hook)
    with refused():
        requite.Worker(echo, bind="sp+tcp://127.0.0.1:0", authenticate=hook)
    with refused():
        Queue("tcp://127.0.0.1:0", "tcp://127.0.0.1:0", authenticate=hook)
    with refused():
        Device("sp+tcp://127.0.0.1:0", "sp+tcp://127.0.0.1:0", authenticate=hook)
    access = Access(parse(b"[user.shop]\nlocal = 7"))
    assert requite.Broker(access=access, authenticate=Authenticator(hook)).endpoints == []
