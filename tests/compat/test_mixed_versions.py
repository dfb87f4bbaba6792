"""An earlier version of requite beside this one: at one broker, and on each other's files.

All are real processes. The earlier version is the last one that knows no users' rights.
"""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import product
from pathlib import Path
from typing import Any, Final

import pytest
from tests.cli.command import Ended, Running, write_users
from tests.compat.versions import Version, Versions, both_versions, place_of, url_of
from tests.support.live import eventually
from tests.support.rabbit import Rabbit

from requite import Client
from requite.access.passwords import hash_password
from requite.cli.exit_codes import ExitCode

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

OLD_AND_NEW: Final = ("old", "new")
MIXES: Final = [mix for mix in product(OLD_AND_NEW, repeat=3) if len(set(mix)) == 2]
PAIRS: Final = [("old", "new"), ("new", "old")]
SCHEMES: Final = ("sp+tcp", "flp", "pirate")
TICKET: Final = re.compile(r"[0-9A-F]{32}\n")
WAIT: Final = ("--timeout", "20")

Urls = dict[str, str]


@pytest.fixture(scope="module")
def versions(tmp_path_factory: pytest.TempPathFactory) -> Versions:
    """The earlier version and this one."""
    return both_versions(tmp_path_factory.mktemp("versions"))


@pytest.fixture(scope="module")
def journals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a journal of each version's processes, `old` and `new`."""
    return tmp_path_factory.mktemp("journals")


@pytest.fixture(scope="module")
def brokers(versions: Versions, journals: Path) -> Iterator[Urls]:
    """A broker of each version, each with a worker of each version; by version, their URLs.

    Each broker has a Titanic, and a worker whose service `fail` fails.
    """
    with ExitStack() as stack:
        titanic = ("--titanic-memory", "--titanic-attempts", "1")
        started = {
            version.name: stack.enter_context(
                version.start_broker(*titanic, "--journal", str(journals / version.name))
            )
            for version in versions
        }
        urls = {name: url_of(broker) for name, broker in started.items()}
        workers = [
            stack.enter_context(version.start_worker("--connect", url, services="which fail"))
            for version, url in product(versions, urls.values())
        ]
        for worker in workers:
            place_of(worker)
        yield urls


@pytest.fixture(scope="module")
def servers(versions: Versions) -> Iterator[dict[tuple[str, str], str]]:
    """Servers without a broker; by scheme and version, their URLs."""
    with ExitStack() as stack:
        started = {
            (scheme, version.name): stack.enter_context(
                version.start_worker("--bind", f"{scheme}://127.0.0.1:0")
            )
            for scheme, version in product(SCHEMES, versions)
        }
        yield {which: place_of(server) for which, server in started.items()}


def assert_replied(ended: Ended, reply: str) -> None:
    """Assert that a command printed this reply."""
    assert (ended.code, ended.out) == (ExitCode.OK, reply), ended.err


def assert_refused(ended: Ended, code: ExitCode, text: str) -> None:
    """Assert that a command failed with one sentence that contains `text`."""
    assert (ended.code, ended.out) == (code, ""), ended.err
    assert text in ended.err
    assert ended.err.startswith("requite: ")
    assert "Traceback" not in ended.err


def kill(process: Running) -> None:
    """Kill a process with SIGKILL."""
    process.send(signal.SIGKILL)
    process.process.wait(20)


# --- versions at one broker -----------------------------------------------------------------------
def test_the_earlier_version_is_another_one(versions: Versions) -> None:
    assert versions.old.requite("access", "--help").code == ExitCode.USAGE


@pytest.mark.parametrize(("broker", "worker", "client"), MIXES)
def test_a_call(versions: Versions, brokers: Urls, broker: str, worker: str, client: str) -> None:
    ended = versions(client).requite("call", f"{brokers[broker]}/{worker}", "hello", *WAIT)
    assert_replied(ended, versions(worker).says("hello"))


@pytest.mark.parametrize(("broker", "client"), PAIRS)
def test_services_and_failures(versions: Versions, brokers: Urls, broker: str, client: str) -> None:
    url, ask = brokers[broker], versions(client).requite
    services = json.loads(ask("services", url, "--json").out)["services"]
    assert {"old", "new", "fail"} <= {each["service"] for each in services}
    failed = ask("call", f"{url}/fail", "", *WAIT)
    assert_refused(failed, ExitCode.FAILED, "out of stock")


@pytest.mark.parametrize(("broker", "client"), PAIRS)
def test_a_durable_request(versions: Versions, brokers: Urls, broker: str, client: str) -> None:
    url, ask = brokers[broker], versions(client).requite
    submitted = ask("call", f"{url}/{broker}", "later", "--submit", *WAIT)
    assert TICKET.fullmatch(submitted.out), submitted.err
    result = ask("result", url, submitted.out.strip(), *WAIT)
    assert_replied(result, versions(broker).says("later"))


@pytest.mark.parametrize(
    "words",
    [
        ("admin", "pause", "{url}", "old"),
        ("access", "whoami", "{url}"),
    ],
)
def test_an_older_broker_cannot_be_operated(
    versions: Versions, brokers: Urls, words: tuple[str, ...]
) -> None:
    ended = versions.new.requite(*(word.format(url=brokers["old"]) for word in words))
    assert_refused(ended, ExitCode.NO_CONNECTION, "it is an older broker")


def test_an_older_titanic_cannot_erase(versions: Versions, brokers: Urls) -> None:
    ended = versions.new.requite("titanic", "erase", brokers["old"], "--owner", "ann")
    assert_refused(ended, ExitCode.UNAVAILABLE, "is of an older version, which cannot erase")


# --- without a broker -----------------------------------------------------------------------------
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(("server", "client"), PAIRS)
def test_a_call_without_a_broker(
    versions: Versions,
    servers: dict[tuple[str, str], str],
    scheme: str,
    server: str,
    client: str,
) -> None:
    ended = versions(client).requite("call", servers[scheme, server], "hello", *WAIT)
    assert_replied(ended, versions(server).says("hello"))


@pytest.mark.parametrize(("queue", "peer"), PAIRS)
def test_a_paranoid_queue(versions: Versions, queue: str, peer: str) -> None:
    places = ("--front", "tcp://127.0.0.1:0", "--back", "tcp://127.0.0.1:0")
    other = versions(peer)
    with versions(queue).running("queue", *places) as process:
        front, back = (process.line().split()[2] for _ in range(2))
        with other.worker("--connect", back):
            assert_replied(other.requite("call", front, "hello", *WAIT), other.says("hello"))


# --- a store of Titanic ---------------------------------------------------------------------------
def submit(version: Version, url: str, service: str, *options: str) -> str:
    """Submit a request; return its ticket."""
    ended = version.requite("call", f"{url}/{service}", "body", "--submit", *options, *WAIT)
    assert TICKET.fullmatch(ended.out), ended.err
    return ended.out.strip()


@pytest.mark.parametrize(("writer", "reader"), PAIRS)
def test_stored_requests_survive_a_change_of_version(
    versions: Versions, tmp_path: Path, writer: str, reader: str
) -> None:
    """The second version reads what the first one wrote, and the first one again what both wrote.

    Each broker is killed.
    """
    first, second = versions(writer), versions(reader)
    options = ("--titanic", str(tmp_path / "requests"), "--titanic-attempts", "1")
    with first.broker(*options) as (broker, url):
        with first.worker("--connect", url, services="which fail"):
            answered, poisoned = submit(first, url, writer), submit(first, url, "fail")
            assert_replied(first.requite("result", url, answered, *WAIT), first.says("body"))
            set_aside = first.requite("result", url, poisoned, *WAIT)
            assert_refused(set_aside, ExitCode.LOST, "out of stock")
        waiting = submit(first, url, reader, "--key", "order 1")
        kill(broker)
    with second.broker(*options) as (broker, url):
        assert_replied(second.requite("result", url, answered, *WAIT), first.says("body"))
        set_aside = second.requite("result", url, poisoned, *WAIT)
        assert_refused(set_aside, ExitCode.LOST, "out of stock")
        assert submit(second, url, reader, "--key", "order 1") == waiting
        with second.worker("--connect", url):
            assert_replied(second.requite("result", url, waiting, *WAIT), second.says("body"))
        assert second.requite("titanic", "forget", url, answered).code == ExitCode.OK
        if second is versions.new:  # the record of an erasure does not disturb the old version
            erased = second.requite("titanic", "erase", url, "--owner", "ann")
            assert erased.out.startswith("erased 0 requests of ann\n")
        kill(broker)
    with first.broker(*options) as (broker, url):
        assert_replied(first.requite("result", url, waiting, *WAIT), second.says("body"))
        listed = first.requite("titanic", "ls", url).out
        assert (poisoned in listed, answered in listed) == (True, False)


@pytest.mark.parametrize(("primary", "standby"), PAIRS)
def test_a_replica_of_the_other_version(
    versions: Versions, tmp_path: Path, primary: str, standby: str
) -> None:
    copy = ("--titanic", str(tmp_path / "copy"), "--titanic-standby")
    other = versions(standby)
    with ExitStack() as stack:
        _, copy_url = stack.enter_context(other.broker(*copy))
        replica = ("--titanic-replica", copy_url, "--titanic-replica-mode", "sync")
        original = ("--titanic", str(tmp_path / "requests"), *replica)
        broker, url = stack.enter_context(versions(primary).broker(*original))
        ticket = submit(versions(primary), url, standby)
        kill(broker)
        assert other.requite("titanic", "promote", copy_url).code == ExitCode.OK
        with other.worker("--connect", copy_url):
            assert_replied(other.requite("result", copy_url, ticket, *WAIT), other.says("body"))


# --- the log of Dedup -----------------------------------------------------------------------------
@contextmanager
def paying(version: Version, url: str, store: Path, *options: str) -> Iterator[Running]:
    """A worker with an idempotent service that stores its replies in `store`."""
    env = {"STORE": str(store)}
    with version.worker("--connect", url, *options, services="pay", env=env) as worker:
        yield worker


def pay(url: str, body: str) -> str:
    """Call the idempotent service with the same key each time; return the reply."""
    with Client(f"{url}/pay", timeout=20) as client:
        return client.call(body.encode(), idempotency_key=b"order 1").body.decode()


@pytest.mark.parametrize(("writer", "reader"), PAIRS)
def test_stored_replies_are_recognised_by_the_other_version(
    versions: Versions, brokers: Urls, tmp_path: Path, writer: str, reader: str
) -> None:
    with paying(versions(writer), brokers[reader], tmp_path / "replies") as worker:
        assert pay(brokers[reader], "1 euro") == f"{writer} paid 1 euro"
        kill(worker)
    with paying(versions(reader), brokers[reader], tmp_path / "replies"):
        assert pay(brokers[reader], "1 euro") == f"{writer} paid 1 euro"


# --- journals -------------------------------------------------------------------------------------
@pytest.mark.parametrize(("writer", "reader"), PAIRS)
def test_a_journal_is_read_by_the_other_version(
    versions: Versions, brokers: Urls, journals: Path, writer: str, reader: str
) -> None:
    """Also while it is written."""
    folder, write, read = str(journals / writer), versions(writer), versions(reader)
    url = f"{brokers[writer]}/{writer}"
    assert_replied(
        write.requite("call", url, "hello", "--journal", folder, *WAIT), write.says("hello")
    )

    def answered() -> list[dict[str, Any]]:
        tail = read.requite("journal", "tail", folder, "--service", writer, "--json")
        assert (tail.code, tail.err) == (ExitCode.OK, "")
        events = map(json.loads, tail.out.splitlines())
        found = [each for each in events if each["kind"] == "answered"]
        return found if {"client", "broker"} <= {each["role"] for each in found} else []

    assert eventually(answered, "the answer is in both logs")
    stats = read.requite("journal", "stats", folder)
    assert (stats.code, stats.err) == (ExitCode.OK, "")
    assert "answered" in stats.out


# --- a pair ---------------------------------------------------------------------------------------
@pytest.mark.parametrize(("primary", "backup"), PAIRS)
def test_a_pair_of_both_versions_fails_over(
    versions: Versions, tmp_path: Path, primary: str, backup: str
) -> None:
    links = [f"ipc://{tmp_path}/{name}" for name in "pb"]
    beat = ("--pair-heartbeat", "0.5")
    one = ("--primary", "--pair-bind", links[0], "--peer", links[1], *beat)
    two = ("--backup", "--pair-bind", links[1], "--peer", links[0], *beat)
    with ExitStack() as stack:
        first, first_url = stack.enter_context(versions(primary).broker(*one))
        _, second_url = stack.enter_context(versions(backup).broker(*two))
        url = f"{first_url},{second_url.removeprefix('mdp://')}"
        stack.enter_context(versions(backup).worker("--connect", url))
        call = ("call", f"{url}/{backup}", "hello", *WAIT)
        assert_replied(versions(primary).requite(*call), versions(backup).says("hello"))
        status = json.loads(versions(backup).requite("pair", "status", links[0], "--json").out)
        assert (status["state"], status["peer_state"]) == ("active", "passive")
        kill(first)
        assert_replied(versions(primary).requite(*call), versions(backup).says("hello"))


# --- a broker with users --------------------------------------------------------------------------
RIGHTS: Final = {
    "worker": 'serve = ["old", "pay"]',
    "client": 'call = ["old", "pay"]\ntitanic = ["submit"]',
    "guest": 'call = ["something else"]',
}


class Guarded:
    """A broker of this version with an access file; `folder` has its store and journal."""

    def __init__(self, folder: Path, broker: Running, url: str) -> None:
        self.folder = folder
        self.broker = broker
        self.url = url

    def as_user(self, name: str) -> tuple[str, str]:
        """Return the options with the password of a user."""
        return "--credentials-file", str(self.folder / name)

    def url_of(self, name: str) -> str:
        """Return the URL with the password of a user."""
        return self.url.replace("mdp://", f"mdp://{name}:secret@")


@pytest.fixture(scope="module")
def guarded(versions: Versions, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """A broker that admits users with passwords, and an old worker of the user `worker`."""
    folder = tmp_path_factory.mktemp("guarded")
    hashed = hash_password("secret")
    users = (f'[user.{name}]\npassword = "{hashed}"\n{RIGHTS[name]}\n' for name in RIGHTS)
    write_users(folder / "access.toml", "".join(users))
    for name in RIGHTS:
        write_users(folder / name, f"{name}:secret\n")
    options = ("--access", str(folder / "access.toml"), "--titanic", str(folder / "requests"))
    with versions.new.broker(*options, "--journal", str(folder / "journal")) as (broker, url):
        found = Guarded(folder, broker, url)
        with versions.old.worker("--connect", url, *found.as_user("worker")):
            yield found


def test_an_old_worker_and_client_with_the_right(versions: Versions, guarded: Guarded) -> None:
    call = ("call", f"{guarded.url}/old", "hello", *WAIT)
    ended = versions.old.requite(*call, *guarded.as_user("client"))
    assert_replied(ended, versions.old.says("hello"))


def test_an_old_client_without_the_right_is_told(versions: Versions, guarded: Guarded) -> None:
    for words in (
        ("call", f"{guarded.url}/old", "x"),
        ("call", f"{guarded.url}/old", "x", "--submit"),
    ):
        ended = versions.old.requite(*words, *WAIT, *guarded.as_user("guest"))
        assert_refused(ended, ExitCode.FAILED, "guest has no right to")
    listed = versions.old.requite("services", guarded.url, *guarded.as_user("guest"))
    assert_refused(listed, ExitCode.FAILED, "guest has no right to admin 'stats'")


def test_an_old_client_without_a_password_is_told(versions: Versions, guarded: Guarded) -> None:
    ended = versions.old.requite("call", f"{guarded.url}/old", "x", *WAIT)
    assert_refused(ended, ExitCode.NO_CONNECTION, "requires a user name and password")


def test_an_old_worker_without_the_right_is_disconnected(
    versions: Versions, guarded: Guarded
) -> None:
    words = ("worker", "tests.compat.served:which", "--connect", guarded.url)
    ended = versions.old.requite(*words, "--wait-connected", "2", *guarded.as_user("guest"))
    assert (ended.code, ended.out) == (ExitCode.NO_CONNECTION, "")
    assert "not connected within 2 s" in ended.err
    assert "Traceback" not in ended.err


def test_replies_stored_before_there_were_users_are_recognised(
    versions: Versions, brokers: Urls, guarded: Guarded, tmp_path: Path
) -> None:
    with paying(versions.old, brokers["old"], tmp_path / "replies") as worker:
        assert pay(brokers["old"], "1 euro") == "old paid 1 euro"
        kill(worker)
    url, store = guarded.url_of("client"), tmp_path / "replies"
    with paying(versions.new, guarded.url, store, *guarded.as_user("worker")) as worker:
        assert pay(url, "1 euro") == "old paid 1 euro"
        assert pay(url, "2 euro") == "new paid 2 euro"  # the same key, but another request
        kill(worker)
    env = {"STORE": str(store)}
    words = ("worker", "tests.compat.served:pay", "--connect", brokers["old"])
    ended = versions.old.requite(*words, env=env)
    assert_refused(ended, ExitCode.USAGE, "a record of version 2")
    assert "Use the newer requite" in ended.err


def test_an_old_version_refuses_the_store_of_a_broker_with_users(
    versions: Versions, guarded: Guarded, tmp_path: Path
) -> None:
    """It would show the requests of each user to everybody."""
    asked = ("--submit", *WAIT, *guarded.as_user("client"))
    submitted = versions.old.requite("call", f"{guarded.url}/old", "x", *asked)
    assert TICKET.fullmatch(submitted.out), submitted.err
    copy = tmp_path / "copy"
    backup = versions.new.requite("titanic", "backup", str(guarded.folder / "requests"), str(copy))
    assert backup.code == ExitCode.OK, backup.err
    ended = versions.old.requite("broker", "--bind", "tcp://127.0.0.1:0", "--titanic", str(copy))
    assert_refused(ended, ExitCode.USAGE, "version 2 is not supported; use a newer requite")


def test_an_old_version_shows_new_kinds_of_events_as_unknown(
    versions: Versions, guarded: Guarded
) -> None:
    denied = versions.old.requite(
        "call", f"{guarded.url}/old", "x", *WAIT, *guarded.as_user("guest")
    )
    assert denied.code == ExitCode.FAILED

    def tail() -> str:
        journal = str(guarded.folder / "journal")
        ended = versions.old.requite("journal", "tail", journal, "-n", "100")
        assert ended.code == ExitCode.FAILED
        assert "all other events were read" in ended.err
        return ended.out if "guest has no right to call 'old'" in ended.out else ""

    assert "unknown:25" in eventually(tail, "the denied request is in the journal")


# --- RabbitMQ -------------------------------------------------------------------------------------
def test_a_call_over_rabbitmq(versions: Versions, rabbit: Rabbit) -> None:
    for worker in versions:
        client = versions.other(worker.name)
        with worker.worker("--connect", rabbit.url):
            call = ("call", rabbit.url, "hello", "--service", worker.name, *WAIT)
            assert_replied(client.requite(*call), worker.says("hello"))
