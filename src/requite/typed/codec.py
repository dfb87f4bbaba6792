"""Codecs: values of annotated types to bytes and back, by msgspec.

A value is a builtin, a dataclass, a TypedDict, a `msgspec.Struct`, a model of pydantic, or a
container of these. Models of pydantic decode and encode themselves, in hooks of msgspec; pydantic
itself is not imported.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from typing import Any, Final, NamedTuple, NoReturn

from requite.errors import ConfigurationError
from requite.typed.keys import check_json_keys, check_msgpack_keys

try:
    import msgspec
except ModuleNotFoundError as missing:
    raise ConfigurationError(
        "typed services need msgspec, which is not installed: pip install 'requite[typed]'"
    ) from missing

FLAWS: Final = (msgspec.MsgspecError, RecursionError, ValueError, TypeError, OverflowError)
"""What decoding and encoding raise for a value of the wrong type, and for bytes that are none."""


_SHOWN_MAX: Final = 300
_LEFT_OUT: Final = " … "


class Flaw(NamedTuple):
    """What is wrong with a value, and where: `$.items[2].count`."""

    path: str
    reason: str


NO_BODY: Final = Flaw("$", "the body is empty")
"""What is wrong with an empty body, where a message is wanted."""


class Codec(NamedTuple):
    """How values become bytes.

    `decoder` makes the decoder of a type. `check_keys` raises `ValueError` for an object that has a
    key twice, which msgspec does not notice.
    """

    name: str
    content_type: str
    encode: Callable[[Any], bytes]
    decoder: Callable[[Any], Callable[[bytes], Any]]
    check_keys: Callable[[bytes], None]


def is_model(kind: Any) -> bool:
    """Whether a type is a model of pydantic."""
    return isinstance(kind, type) and hasattr(kind, "model_validate")


def _decode_custom(kind: Any, value: Any) -> Any:
    if is_model(kind):
        return kind.model_validate(value)
    _refuse(kind)


def _encode_custom(value: Any) -> Any:
    if is_model(type(value)):
        return value.model_dump(mode="json")
    _refuse(type(value))


def _refuse(kind: Any) -> NoReturn:
    raise NotImplementedError(f"messages cannot have values of {kind.__name__}")


def _json_decoder(kind: Any) -> Callable[[bytes], Any]:
    return msgspec.json.Decoder(kind, dec_hook=_decode_custom).decode


def _msgpack_decoder(kind: Any) -> Callable[[bytes], Any]:
    return msgspec.msgpack.Decoder(kind, dec_hook=_decode_custom).decode


JSON: Final = Codec(
    "json",
    "application/json",
    msgspec.json.Encoder(enc_hook=_encode_custom).encode,
    _json_decoder,
    check_json_keys,
)
MSGPACK: Final = Codec(
    "msgpack",
    "application/msgpack",
    msgspec.msgpack.Encoder(enc_hook=_encode_custom).encode,
    _msgpack_decoder,
    check_msgpack_keys,
)
_CODECS: Final = {codec.name: codec for codec in (JSON, MSGPACK)}


def codec_of(name: str) -> Codec:
    """Return a codec by its name. Raises `ConfigurationError`."""
    try:
        return _CODECS[name]
    except (KeyError, TypeError):
        known = " or ".join(map(repr, _CODECS))
        raise ConfigurationError(f"a codec is {known}, not {name!r}") from None


def msgpack_to_json(body: bytes) -> bytes:
    """Return a message of MessagePack as JSON: bytes and times become text. Raises one of `FLAWS`,
    also for infinity and NaN, which JSON does not have."""
    value = msgspec.msgpack.decode(body)
    _check_finite(value, "$")
    return JSON.encode(value)


def _check_finite(value: Any, path: str) -> None:
    if isinstance(value, float):
        if not isfinite(value):
            raise ValueError(f"JSON has no {value} - at `{path}`")
    elif isinstance(value, dict):
        for name, each in value.items():
            _check_finite(each, f"{path}.{name}")
    elif isinstance(value, list):
        for index, each in enumerate(value):
            _check_finite(each, f"{path}[{index}]")


def shortened(text: str) -> str:
    """Return a text about a message without the middle of a long one: it may quote any value."""
    if len(text) <= _SHOWN_MAX:
        return text
    half = (_SHOWN_MAX - len(_LEFT_OUT)) // 2
    return f"{text[:half]}{_LEFT_OUT}{text[-half:]}"


def flaw_of(error: Exception) -> Flaw:
    """Return the place and the reason of an error of a codec, each of them `shortened`."""
    path, reason = _flaw_of(error)
    return Flaw(shortened(path), shortened(reason))


def _flaw_of(error: Exception) -> Flaw:
    if isinstance(error, RecursionError):
        return Flaw("$", "it is nested too deeply")
    cause: Any = error.__cause__
    text, _, path = str(error).partition(" - at `")
    path = path.rstrip("`") or "$"
    if hasattr(cause, "errors") and (flaws := cause.errors()):  # of pydantic
        return Flaw(path + "".join(map(_step, flaws[0]["loc"])), flaws[0]["msg"])
    text = text.replace("`", "") or type(error).__name__
    return Flaw(path, text[0].lower() + text[1:] if text.startswith("Expected") else text)


def _step(where: object) -> str:
    return f"[{where}]" if isinstance(where, int) else f".{where}"
