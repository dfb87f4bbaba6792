"""The channels of one connection: every request gets its answer, in order, whatever is lost or
refused."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands
from tests.support.amqp_engines import Rabbit, method

from requite.engine import Disconnect, PeerJoined, PeerLost, Warn
from requite.errors import LocalViolation
from requite.protocols.amqp import methods
from requite.protocols.amqp.channels import (
    AmqpChannels,
    Ask,
    Content,
    OpenChannel,
    Opened,
    Publish,
    Say,
)
from requite.protocols.amqp.methods import CONNECTION, Closed
from requite.protocols.amqp.properties import Properties, encode_properties

ONE, TWO = methods.channel(1), methods.channel(2)
HEADER = encode_properties(Properties("c"), 4)
NO_ROUTE = commands.Basic.Return(312, "NO_ROUTE", "e", "k")
DECLARE_PASSIVE = methods.queue_declare("q", passive=True)


class Side(Rabbit):
    """RabbitMQ, as seen by an engine with channels."""

    def opened(self, *tokens: str, confirms: bool = False) -> Side:
        """Connect, and open channels with these tokens."""
        self.connect()
        for number, token in enumerate(tokens, 1):
            self.feed(OpenChannel(token, confirms))
            self.say(commands.Channel.OpenOk(), methods.channel(number))
        return self

    def publish(self, token: str, body: bytes = b"body", routing_key: str = "k") -> None:
        self.feed(Publish(token, ONE, "e", routing_key, HEADER, body))

    def return_message(self, header: bytes = HEADER, body: bytes = b"body") -> None:
        """Return a published message."""
        self.hear([ONE, method(NO_ROUTE), header, body])

    def confirmed(self, tag: int, multiple: bool = False) -> list[tuple[Any, str]]:
        """Confirm published messages; return their results by token."""
        self.say(commands.Basic.Ack(tag, multiple), ONE)
        return [(token, type(what).__name__) for token, what in self.delivered()]


@pytest.fixture
def rabbit() -> Side:
    return Side(AmqpChannels("connection"))


# --- the connection -------------------------------------------------------------------------------
def test_connection_and_loss_are_reported(rabbit: Side) -> None:
    rabbit.connect()
    assert rabbit.delivered() == [("connection", methods.Tuned(16, 131072, 0))]
    rabbit.feed(PeerLost(rabbit.peer, "reset by peer"))
    assert rabbit.delivered() == [("connection", Closed(0, "reset by peer", b""))]


def test_a_refused_connection_is_reported_with_its_code(rabbit: Side) -> None:
    rabbit.feed(PeerJoined(rabbit.peer))
    rabbit.say(commands.Connection.Close(530, "NOT_ALLOWED", 10, 40), CONNECTION)
    refused = Closed(530, "NOT_ALLOWED", methods.CONNECTION_OPEN)
    assert rabbit.delivered() == [("connection", refused)]


def test_a_silent_server_times_out(rabbit: Side) -> None:
    rabbit.connect(heartbeat_s=10)
    for _ in range(2):
        rabbit.wake(5.0)
        assert rabbit.sent() == ["HEARTBEAT"]
    rabbit.wake(5.0)
    assert [type(effect) for effect in rabbit.effects if isinstance(effect, Disconnect)]
    [(token, closed)] = rabbit.delivered()
    assert (token, closed.code, "silent" in closed.text) == ("connection", 0, True)


def test_requests_without_a_connection_fail_at_once(rabbit: Side) -> None:
    rabbit.feed(OpenChannel("a"))
    [(token, closed)] = rabbit.delivered()
    assert (token, closed.code) == ("a", 0)
    rabbit.feed(Ask("b", ONE, DECLARE_PASSIVE))
    assert [token for token, _ in rabbit.delivered()] == ["b"]
    rabbit.publish("c")
    assert [token for token, _ in rabbit.delivered()] == ["c"]
    assert rabbit.feed(Say(ONE, methods.ack(1))) == []


def test_a_lost_connection_fails_all_channels_and_requests(rabbit: Side) -> None:
    rabbit.opened("one", "two", confirms=True)
    rabbit.feed(Ask("asked", TWO, DECLARE_PASSIVE))
    rabbit.publish("published")
    rabbit.feed(PeerLost(rabbit.peer, "reset"))
    assert [token for token, _ in rabbit.delivered()] == [
        "one",
        "published",
        "two",
        "asked",
        "connection",
    ]
    assert {what for _, what in rabbit.delivered()} == {Closed(0, "reset", b"")}
    assert rabbit.engine.snapshot().channels == 0


def test_a_blocked_connection_causes_a_warning(rabbit: Side) -> None:
    rabbit.connect()
    rabbit.say(commands.Connection.Blocked("low on memory"), CONNECTION)
    [warning] = rabbit.effects
    assert isinstance(warning, Warn)
    assert "low on memory" in warning.text


def test_malformed_methods_are_ignored(rabbit: Side) -> None:
    rabbit.opened("one")
    for channel in (CONNECTION, ONE, TWO):
        rabbit.hear([channel, b""], [channel, b"\xff" * 9], [channel, methods.BASIC_DELIVER])
        assert rabbit.delivered() == []
    Side(AmqpChannels("c")).hear([CONNECTION, b"\xff" * 9])


# --- channels -------------------------------------------------------------------------------------
def test_channels_get_the_lowest_free_number(rabbit: Side) -> None:
    rabbit.opened("one")
    assert rabbit.delivered() == [("one", Opened(ONE))]
    rabbit.feed(OpenChannel("two"))
    rabbit.say(commands.Channel.OpenOk(), TWO)
    assert rabbit.delivered() == [("two", Opened(TWO))]
    rabbit.close_channel(404, DECLARE_PASSIVE[:4], ONE)
    rabbit.feed(OpenChannel("three"))
    rabbit.say(commands.Channel.OpenOk(), ONE)
    assert rabbit.delivered() == [("three", Opened(ONE))]


def test_more_channels_than_allowed_are_refused(rabbit: Side) -> None:
    rabbit.opened(*map(str, range(16)))
    with pytest.raises(LocalViolation, match="16 channels"):
        rabbit.feed(OpenChannel("one too many"))


@pytest.mark.parametrize("code", [403, 404, 405, 406])
def test_a_refusal_closes_only_its_channel(rabbit: Side, code: int) -> None:
    rabbit.opened("one", "two")
    rabbit.feed(Ask("a", ONE, DECLARE_PASSIVE))
    rabbit.feed(Ask("b", TWO, DECLARE_PASSIVE))
    rabbit.close_channel(code, DECLARE_PASSIVE[:4], ONE)
    closed = Closed(code, "TEXT", DECLARE_PASSIVE[:4])
    assert rabbit.sent(ONE) == ["CHANNEL_CLOSE_OK"]
    assert rabbit.delivered() == [("one", closed), ("a", closed)]
    rabbit.say(commands.Queue.DeclareOk("q", 3, 1), TWO)
    assert rabbit.delivered() == [("b", methods.Declared("q", 3, 1))]
    rabbit.feed(Ask("late", ONE, DECLARE_PASSIVE))
    assert [token for token, _ in rabbit.delivered()] == ["late"]


def test_answers_match_requests_in_order(rabbit: Side) -> None:
    rabbit.opened("one")
    for token in ("a", "b"):
        rabbit.feed(Ask(token, ONE, DECLARE_PASSIVE))
    rabbit.say(commands.Queue.DeclareOk("q", 1, 0), ONE)
    assert rabbit.delivered() == [("a", methods.Declared("q", 1, 0))]
    rabbit.say(commands.Queue.DeclareOk("q", 2, 0), ONE)
    assert rabbit.delivered() == [("b", methods.Declared("q", 2, 0))]


def test_a_channel_that_we_close_ends_with_the_confirmation(rabbit: Side) -> None:
    rabbit.opened("one")
    rabbit.feed(Ask("close", ONE, methods.channel_close(200, "done")))
    assert rabbit.sent(ONE) == ["CHANNEL_CLOSE"]
    rabbit.feed(Ask("late", ONE, DECLARE_PASSIVE))
    assert [token for token, _ in rabbit.delivered()] == ["late"]
    rabbit.close_channel(404, DECLARE_PASSIVE[:4], ONE)  # the server's close crosses ours
    assert (rabbit.sent(ONE), rabbit.delivered()) == (["CHANNEL_CLOSE_OK"], [])
    rabbit.say(commands.Channel.CloseOk(), ONE)
    assert [token for token, _ in rabbit.delivered()] == ["one", "close"]


# --- messages -------------------------------------------------------------------------------------
def test_messages_are_delivered_to_their_channel(rabbit: Side) -> None:
    rabbit.opened("one", "two")
    rabbit.deliver(b"body", tag=7, channel=TWO, correlation_id="c")
    delivered = methods.Delivered("c", 7, False, "", "k")
    assert rabbit.delivered() == [("two", Content(delivered, HEADER, b"body"))]
    rabbit.feed(Say(TWO, methods.ack(7)))
    assert rabbit.sent(TWO) == ["BASIC_ACK"]


def test_a_cancelled_consumer_is_reported(rabbit: Side) -> None:
    rabbit.opened("one")
    rabbit.say(commands.Basic.Cancel("c"), ONE)
    assert rabbit.delivered() == [("one", methods.Cancelled("c", by_us=False))]
    rabbit.feed(Ask("cancel", ONE, methods.cancel("c")))
    rabbit.say(commands.Basic.CancelOk("c"), ONE)
    assert rabbit.delivered() == [("cancel", methods.Cancelled("c", by_us=True))]


def test_get_delivers_a_message_or_an_empty_answer(rabbit: Side) -> None:
    rabbit.opened("one")
    for token in ("a", "b"):
        rabbit.feed(Ask(token, ONE, methods.get("q")))
    rabbit.hear([ONE, method(commands.Basic.GetOk(1, False, "e", "k", 5)), HEADER, b"body"])
    got = methods.Got(1, False, "e", "k", 5)
    assert rabbit.delivered() == [("a", Content(got, HEADER, b"body"))]
    rabbit.say(commands.Basic.GetEmpty(), ONE)
    assert rabbit.delivered() == [("b", methods.Done(methods.BASIC_GET_EMPTY))]


def test_a_message_over_the_size_limit_causes_a_warning(rabbit: Side) -> None:
    rabbit.opened("one")
    rabbit.deliver(None, channel=ONE)
    [warning] = rabbit.effects
    assert isinstance(warning, Warn)


def test_get_of_a_message_over_the_size_limit_delivers_no_content(rabbit: Side) -> None:
    rabbit.opened("one")
    rabbit.feed(Ask("a", ONE, methods.get("q")))
    rabbit.hear([ONE, method(commands.Basic.GetOk(1, False, "e", "k", 5)), HEADER])
    assert rabbit.delivered() == [("a", methods.Got(1, False, "e", "k", 5))]
    assert any(isinstance(effect, Warn) for effect in rabbit.effects)


# --- publishing -----------------------------------------------------------------------------------
def test_messages_are_published_mandatory_and_confirmed(rabbit: Side) -> None:
    rabbit.opened("one", confirms=True)
    rabbit.publish("a")
    [(exchange, routing_key, properties, body)] = rabbit.published(ONE)
    assert (exchange, routing_key, properties.correlation_id, body) == ("e", "k", "c", b"body")
    assert rabbit.raw("BASIC_PUBLISH")[0].endswith(b"\x01")
    assert rabbit.confirmed(1) == [("a", "Confirmed")]


def test_a_returned_message_is_matched_to_its_token(rabbit: Side) -> None:
    rabbit.opened("one", confirms=True)
    rabbit.publish("a", b"first")
    rabbit.publish("b", b"second")
    rabbit.publish("c", b"second", routing_key="elsewhere")
    rabbit.return_message(body=b"second")
    assert rabbit.delivered() == []  # the result follows with the confirm
    assert rabbit.confirmed(3, multiple=True) == [
        ("a", "Confirmed"),
        ("b", "Returned"),
        ("c", "Confirmed"),
    ]


def test_of_equal_messages_as_many_are_reported_as_were_returned(
    rabbit: Side,
) -> None:
    rabbit.opened("one", confirms=True)
    for token in "abc":
        rabbit.publish(token)
    rabbit.return_message()
    rabbit.return_message()
    names = [name for _, name in rabbit.confirmed(3, multiple=True)]
    assert sorted(names) == ["Confirmed", "Returned", "Returned"]


def test_a_returned_message_with_reencoded_properties_is_matched(rabbit: Side) -> None:
    rabbit.opened("one", confirms=True)
    rabbit.publish("a", routing_key="other")
    rabbit.publish("b")
    rabbit.return_message(encode_properties(Properties("c", persistent=True), 4))
    assert rabbit.confirmed(2, multiple=True) == [("a", "Confirmed"), ("b", "Returned")]


def test_a_negative_confirm_is_reported(rabbit: Side) -> None:
    rabbit.opened("one", confirms=True)
    rabbit.publish("a")
    rabbit.say(commands.Basic.Nack(1, False, False), ONE)
    assert rabbit.delivered() == [("a", methods.Confirmed(1, False, False))]
