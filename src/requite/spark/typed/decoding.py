"""Decode the replies of a typed method as values of a type of Spark.

Nothing is rounded and nothing becomes null that the method did not send as null: an integer out of
range, a decimal with too many digits, a time finer than a microsecond, a missing field are
`BadReply`.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Mapping
from decimal import Context, Decimal, InvalidOperation
from typing import Annotated, Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql.types import ArrayType, DataType, DecimalType, MapType, StructType

from requite.errors import BadReply
from requite.spark.typed.fitting import Alternatives, Definitions, default_of
from requite.typed.codec import FLAWS, codec_of, flaw_of
from requite.typed.described import Schema
from requite.typed.keys import check_msgpack_times
from requite.typed.messages import bad_reply

_FLOAT_MAX: Final = 3.4028234663852886e38
_ARROW: Final[Mapping[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "binary": pa.binary(),
}
_PLAIN: Final[Mapping[str, Any]] = {
    "boolean": bool,
    "byte": Annotated[int, msgspec.Meta(ge=-(2**7), le=2**7 - 1)],
    "short": Annotated[int, msgspec.Meta(ge=-(2**15), le=2**15 - 1)],
    "integer": Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)],
    "long": Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)],
    "float": Annotated[float, msgspec.Meta(ge=-_FLOAT_MAX, le=_FLOAT_MAX)],
    "double": float,
    "string": str,
    "date": datetime.date,
    "binary": bytes,
}
_DECODERS: Final[Mapping[str, Any]] = {
    "json": msgspec.json.Decoder,
    "msgpack": msgspec.msgpack.Decoder,
}
_WIDE: Final = Context(prec=40)
_FINER: Final = re.compile(r"\.\d{6}\d*[1-9]", re.ASCII)
_AS_THEY_ARE: Final = (bytes, Decimal, datetime.date, datetime.datetime)
_EMPTY: Final = (b"", b"null", b"\xc0")


def arrow_type(kind: DataType) -> pa.DataType:
    """Return the type of Arrow for a column of replies."""
    match kind:
        case StructType():
            return pa.struct([(field.name, arrow_type(field.dataType)) for field in kind.fields])
        case ArrayType():
            return pa.list_(arrow_type(kind.elementType))
        case MapType():
            return pa.map_(pa.string(), arrow_type(kind.valueType))
        case DecimalType():
            return pa.decimal128(kind.precision, kind.scale)
    return _ARROW[kind.typeName()]


class Fixed(Decimal):
    """A decimal of a certain precision and scale, which a subclass has."""

    precision: int
    scale: int

    @classmethod
    def read(cls, value: Any) -> Fixed:
        """Return a decimal from its text or an integer. Raises `ValueError`."""
        if type(value) not in (str, int):
            raise ValueError(f"Expected a decimal as text, got {type(value).__name__}")
        try:
            number = cls(value)
        except InvalidOperation:
            raise ValueError("Expected a decimal") from None
        if not number.is_finite() or not number._fits():
            raise ValueError(f"{number} does not fit DECIMAL({cls.precision},{cls.scale}) exactly")
        return cls(number.quantize(Decimal(1).scaleb(-cls.scale), context=_WIDE))

    def plain(self) -> Decimal:
        """Return the value as Arrow takes it."""
        return Decimal(self)

    def _fits(self) -> bool:
        digits, exponent = self.as_tuple().digits, int(self.as_tuple().exponent)
        significant = len(digits)
        while exponent < -self.scale and not digits[significant - 1]:
            significant, exponent = significant - 1, exponent + 1
            if not significant:
                return True
        whole = self.adjusted() + 1 if self else 0
        return exponent >= -self.scale and whole <= self.precision - self.scale


class Time:
    """A time with a time zone. Those of JSON are text, which msgspec would round to 1 us; it has
    rounded those of MessagePack (`check_msgpack_times`)."""

    kind: Any = Annotated[datetime.datetime, msgspec.Meta(tz=True)]

    def __init__(self, value: datetime.datetime) -> None:
        self._value = value

    @classmethod
    def read(cls, value: Any) -> Time:
        """Return a time from its text or, with MessagePack, a time. Raises `ValueError`."""
        if isinstance(value, str) and _FINER.search(value):
            raise ValueError(f"{value} is finer than a microsecond")
        try:
            return cls(msgspec.convert(value, cls.kind))
        except msgspec.ValidationError as error:
            raise ValueError(str(error)) from error  # to which msgspec adds the path

    def plain(self) -> datetime.datetime:
        """Return the value as Arrow takes it."""
        return self._value


class LocalTime(Time):
    """A time without a time zone."""

    kind = Annotated[datetime.datetime, msgspec.Meta(tz=False)]


_TIMES: Final[Mapping[str, type[Time]]] = {"timestamp": Time, "timestamp_ntz": LocalTime}


class Decoder:
    """Decodes replies; the output of the method fits the type."""

    def __init__(
        self, kind: DataType, schema: Schema, definitions: Mapping[str, Schema], codec: str
    ) -> None:
        self._decode: Callable[[bytes], Any]
        self._has_keys = False
        self._check_keys: Callable[[bytes], None] = codec_of(codec).check_keys
        self._has_times = codec == "msgpack" and _has_times(kind)
        if schema.get("contentEncoding") == "binary":
            self._decode = bytes
        elif schema.get("type") == "null":
            self._decode = _nothing
        else:
            self._has_keys = _has_keys(kind)
            self._decode = _DECODERS[codec](
                _Types(Definitions(definitions)).of(kind, [schema]), dec_hook=_read
            ).decode

    def decode(self, body: bytes, attempts: int) -> Any:
        """Return a reply as Arrow takes it: dicts for structs and maps. Raises `BadReply`."""
        try:
            value = self._decode(body)
            if self._has_keys:
                self._check_keys(body)
            if self._has_times:
                check_msgpack_times(body)
            return msgspec.to_builtins(value, builtin_types=_AS_THEY_ARE, enc_hook=_plain)
        except FLAWS as error:
            raise _misfit(error, attempts) from error


def _has_keys(kind: DataType) -> bool:
    """Whether values have keys, which a method may send twice."""
    return isinstance(kind, StructType | MapType) or (
        isinstance(kind, ArrayType) and _has_keys(kind.elementType)
    )


def _has_times(kind: DataType) -> bool:
    """Whether values have times of day."""
    if isinstance(kind, StructType):
        return any(_has_times(field.dataType) for field in kind.fields)
    if isinstance(kind, ArrayType):
        return _has_times(kind.elementType)
    return kind.typeName() in _TIMES or (isinstance(kind, MapType) and _has_times(kind.valueType))


def _misfit(error: Exception, attempts: int) -> BadReply:
    path, reason = flaw_of(error)
    return bad_reply(path, reason, attempts)


def _read(kind: type[Fixed | Time], value: Any) -> Fixed | Time:
    return kind.read(value)


def _plain(value: Fixed | Time) -> Decimal | datetime.datetime:
    return value.plain()


def _nothing(body: bytes) -> None:
    if body not in _EMPTY:
        raise ValueError("it must be empty")


class _Types:
    """Makes the types of Python that msgspec decodes strictly."""

    def __init__(self, definitions: Definitions) -> None:
        self._definitions = definitions

    def of(self, kind: DataType, schemas: list[Schema]) -> Any:
        """Return the type for values of one of the schemas."""
        parts = [Alternatives(schema, self._definitions) for schema in schemas]
        options = [option for part in parts for option in part.schemas]
        made = self._made(kind, options)
        return made | None if any(part.is_nullable for part in parts) else made

    def _made(self, kind: DataType, schemas: list[Schema]) -> Any:
        if isinstance(kind, StructType):
            return self._struct(kind, schemas)
        if isinstance(kind, ArrayType):
            return list[self.of(kind.elementType, _parts(schemas, "items"))]  # type: ignore[misc]
        if isinstance(kind, MapType):
            values = self.of(kind.valueType, _parts(schemas, "additionalProperties"))
            return dict[str, values]  # type: ignore[valid-type]
        if isinstance(kind, DecimalType):
            size = {"precision": kind.precision, "scale": kind.scale}
            return type("Fixed", (Fixed,), size)
        return _TIMES.get(kind.typeName()) or _PLAIN[kind.typeName()]

    def _struct(self, kind: StructType, schemas: list[Schema]) -> Any:
        fields: list[Any] = []
        for number, field in enumerate(kind.fields):
            parts = [schema["properties"][field.name] for schema in schemas]
            made, name = self.of(field.dataType, parts), f"f{number}"
            if all(field.name in schema.get("required", []) for schema in schemas):
                fields.append((name, made))
            else:
                fields.append((name, made, _default(parts, made)))
        names = {f"f{number}": field.name for number, field in enumerate(kind.fields)}
        return msgspec.defstruct("Reply", fields, rename=names, kw_only=True)


def _parts(schemas: list[Schema], key: str) -> list[Schema]:
    return [schema[key] for schema in schemas]


def _default(parts: list[Schema], made: Any) -> Any:
    """Return the default of a field that may be left out: None if its schemas have none."""
    if (default := default_of(parts)) is None:
        return None
    return msgspec.field(default_factory=lambda: msgspec.convert(default, made, dec_hook=_read))
