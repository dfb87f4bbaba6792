"""The method that a bulk call uses: as its service describes it, and as the job uses it.

The driver reads the description before anything is sent. Each Python worker reads it once more
before the first row of a job, since the service may have changed in between.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark.sql.types import DataType

from requite.errors import (
    BadRequest,
    CallError,
    ConfigurationError,
    NoService,
    RemoteFailure,
    RemoteViolation,
)
from requite.spark.typed.decoding import Decoder
from requite.spark.typed.derived import type_of
from requite.spark.typed.encoding import Encoder
from requite.spark.typed.fitting import Definitions, returns, takes
from requite.spark.typed.refused import Refused
from requite.typed.codec import codec_of
from requite.typed.described import DescribedMethod, Description, Schema, read_description
from requite.typed.names import DESCRIBE
from requite.typed.refusals import error_of, told_by


@dataclass(frozen=True)
class Contract:
    """A method and the types with which a job uses it. `errors`: the names of those declared."""

    address: str
    codec: str
    body: DataType
    reply: DataType
    input: Schema
    output: Schema
    errors: frozenset[str]
    definitions: dict[str, Schema]

    @property
    def describing(self) -> str:
        """The service name that returns the description."""
        return _describing(self.address)

    def renewed(self, description: bytes) -> Contract:
        """Return the contract for a later description of the service.

        Raises `ConfigurationError` if the types do not fit any more, and `RemoteViolation`.
        """
        return contract_of(description, self.address, self.body, self.reply)

    def error_of(self, error: CallError) -> CallError:
        """Return what a negative reply stands for; any other error as it is."""
        if type(error) is not RemoteFailure:
            return error
        told = told_by(error) or {}
        if (name := told.get("error")) in self.errors:
            data = json.dumps(told.get("data"), ensure_ascii=False)
            return Refused(str(told.get("message", "")), str(name), data, error.attempts)
        known = error_of(error, {})
        return known if isinstance(known, CallError) else error


def read_contract(
    address: str, ask: Callable[[str], bytes], body: DataType, reply: DataType | None
) -> Contract:
    """Ask the service for its description; return the contract. Runs on the driver.

    `ask` returns the reply of another service of the same peer. `reply` None: the type is derived
    from the description. Raises `ConfigurationError` for types that do not fit, `RemoteViolation`
    for something that is no description, and the error of the call.
    """
    service = _describing(address)
    try:
        description = ask(service)
    except CallError as error:
        raise _unread(error, address) from error
    return contract_of(description, address, body, reply)


def _unread(error: CallError, address: str) -> CallError:
    hint = ""
    if isinstance(error, NoService | RemoteFailure):
        hint = "; struct columns and returns= require a typed service"
    text = f"nothing was sent: the description of {address} cannot be read: {error}{hint}"
    kind: Any = type(error) if not isinstance(error, BadRequest) else RemoteFailure
    unread: CallError = kind(text, may_have_executed=False, attempts=error.attempts)
    return unread


def contract_of(
    description: bytes, address: str, body: DataType, reply: DataType | None
) -> Contract:
    """Return the contract with a described method; see `read_contract` for errors."""
    described = read_description(description, f"what {_describing(address)} returns")
    method = _method(described, address)
    try:
        return _checked(described, method, body, reply)
    except (AttributeError, KeyError, TypeError, RecursionError) as error:
        # The schemas are those of a peer, and may have any form.
        raise RemoteViolation(
            f"the description of {address} has schemas that cannot be read:"
            f" {type(error).__name__}: {error}"
        ) from error


def _method(described: Description, address: str) -> DescribedMethod:
    for method in described.methods:
        if method.address == address:
            if method.partial:
                raise ConfigurationError(
                    f"{address} has partial replies, which bulk calls do not carry"
                )
            return method
    known = ", ".join(method.address for method in described.methods) or "none"
    raise ConfigurationError(f"there is no method {address}; the methods are {known}")


def _checked(
    described: Description, method: DescribedMethod, body: DataType, reply: DataType | None
) -> Contract:
    address, definitions = method.address, Definitions(described.definitions)
    if misfits := takes(body, method.input, definitions):
        raise ConfigurationError(f"the body does not fit {address}: {'; '.join(misfits)}")
    if reply is None:
        try:
            reply = type_of(method.output, definitions)
        except ValueError as error:
            raise ConfigurationError(
                f"the type of the replies of {address} cannot be derived: {error}; pass returns=..."
            ) from error
    is_json = described.codec == "json"
    if misfits := returns(reply, method.output, definitions, is_json):
        raise ConfigurationError(
            f"{address} does not return {reply.simpleString()}: {'; '.join(misfits)}"
        )
    codec, schemas = codec_of(described.codec), described.definitions
    # What cannot be made raises here, and not in a task.
    Encoder(body, method.input, schemas, codec)
    Decoder(reply, method.output, schemas, codec.name)
    return Contract(
        address,
        codec.name,
        body,
        reply,
        method.input,
        method.output,
        frozenset(error.name for error in method.errors),
        schemas,
    )


def _describing(address: str) -> str:
    prefix, _, method = address.rpartition(".")
    if not prefix or not method:
        raise ConfigurationError(
            "a struct column and returns= require a method of a typed service, SERVICE.METHOD"
            f" (orders.price), not {address!r}"
        )
    return f"{prefix}.{DESCRIBE}"
