"""The messages of a typed method in a task, and the check before the first row."""

from __future__ import annotations

import asyncio
import random

import pyarrow as pa

from requite.client import AsyncClient
from requite.errors import BadReply, CallError, ConfigurationError, RemoteViolation, RequiteError
from requite.spark.bulk.outcome import Outcome
from requite.spark.bulk.plan import Plan
from requite.spark.typed.contract import Contract
from requite.spark.typed.decoding import Decoder, arrow_type
from requite.spark.typed.encoding import Encoder
from requite.spark.typed.refused import data_of, status_of
from requite.typed.codec import codec_of


class TypedMessages:
    """Encodes bodies and decodes replies (`Messages`)."""

    def __init__(self, contract: Contract, refusal: Outcome | None = None) -> None:
        self.reply_type: pa.DataType = arrow_type(contract.reply)
        self.refusal = refusal
        definitions = contract.definitions
        codec = codec_of(contract.codec)
        self._encoder = Encoder(contract.body, contract.input, definitions, codec)
        self._decoder = Decoder(contract.reply, contract.output, definitions, codec.name)

    def encode(self, column: pa.Array) -> tuple[list[bytes | None], dict[int, str]]:
        """See `Encoder.encode`."""
        return self._encoder.encode(column)

    def decode(self, outcomes: list[Outcome]) -> list[Outcome]:
        """Return the outcomes with decoded replies; one that does not fit is a `BadReply`."""
        return list(map(self._decoded, outcomes))

    def _decoded(self, outcome: Outcome) -> Outcome:
        if outcome.status != "OK" or outcome.reply is None:
            return outcome
        try:
            return outcome._replace(reply=self._decoder.decode(outcome.reply, outcome.attempts))
        except BadReply as error:
            return outcome._replace(
                reply=None,
                status=status_of(error),
                error=str(error),
                error_data=data_of(error),
            )


async def checked(client: AsyncClient, plan: Plan) -> Contract | Outcome:
    """Ask the service once more for its description, before the first row of a job.

    Return the contract with the service as it is now, or the outcome of rows that must not be sent.
    A service that does not answer is asked again as rows are, and then counts as down: with
    `give_up`, no row is sent.
    """
    contract = plan.contract
    assert contract is not None
    requests = 0
    while True:
        requests += 1
        try:
            reply = await client.call(b"", service=contract.describing, timeout=plan.patience_s)
            return contract.renewed(reply.body)
        except (ConfigurationError, RemoteViolation) as error:
            return _unsent(error, f"{contract.address} has changed since the job was planned")
        except CallError as error:
            retry = plan.connection.retry
            if status_of(error) in plan.retry_on and requests < retry.attempts:
                await asyncio.sleep(retry.delay_s(requests, random.random))
            elif plan.give_up:
                return _unsent(error, f"the description of {contract.address} cannot be read")
            else:
                return contract


def _unsent(error: RequiteError, why: str) -> Outcome:
    return Outcome(None, type(error).__name__, 0, 0.0, False, f"not sent: {why}: {error}")
