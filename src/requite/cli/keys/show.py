"""`requite keys show`: show the certificates in a file."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from requite.cli.options import JsonFlag
from requite.cli.output import counted, printable, say, say_json

if TYPE_CHECKING:
    from requite.cli.keys.certificates import Shown


def show(
    path: Annotated[Path, Parameter(name="FILE", help="A file in PEM format.")],
    /,
    *,
    as_json: JsonFlag = False,
) -> None:
    """Show the certificates in a file: names, the hash of the public key, expiry.

    A listener knows a peer by its subject, its common name (`CN=shop`) or the hash
    of its public key (`sha256:…`). The hash stays the same if a certificate is
    renewed with the same key.

      $ requite keys show keys/shop.pem
    """
    from requite.cli.keys.certificates import certificates_in

    now, found = datetime.now(UTC), certificates_in(path)
    if as_json:
        say_json({"certificates": [record(each) for each in found]})
        return
    say("\n\n".join("\n".join(map(printable, lines(each, now))) for each in found))


def record(shown: Shown) -> dict[str, Any]:
    """Return a certificate as a dict for JSON."""
    return {
        "subject": shown.subject,
        "names": list(shown.names),
        "key": shown.key,
        "issuer": shown.issuer,
        "valid_from": shown.valid_from.isoformat(),
        "valid_until": shown.valid_until.isoformat(),
        "is_authority": shown.is_authority,
    }


def lines(shown: Shown, now: datetime) -> Iterator[str]:
    """Yield the lines about a certificate."""
    yield f"subject  {shown.subject or '(none)'}{' (an authority)' if shown.is_authority else ''}"
    if shown.names:
        yield f"names    {', '.join(shown.names)}"
    yield f"key      {shown.key}"
    yield f"issuer   {shown.issuer}"
    period = f"{shown.valid_from:%Y-%m-%d} to {shown.valid_until:%Y-%m-%d}"
    yield f"valid    {period}: {_state(shown, now)}"


def _state(shown: Shown, now: datetime) -> str:
    if now < shown.valid_from:
        return "NOT VALID YET"
    if now > shown.valid_until:
        return "EXPIRED"
    return f"{counted((shown.valid_until - now).days, 'day')} left"
