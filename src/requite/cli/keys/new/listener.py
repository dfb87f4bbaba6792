"""`requite keys new listener`: make the certificate of a broker or another listener."""

from __future__ import annotations

from shlex import quote
from typing import Annotated

from cyclopts import Parameter

from requite.cli.keys.options import CA_CERTIFICATE, CaFolder, Days, Out, place_for, write_new
from requite.cli.output import say


def listener(
    name: Annotated[
        str, Parameter(name="NAME", help="Host name or IP address by which peers connect to it.")
    ],
    /,
    *more: Annotated[str, Parameter(name="MORE", help="Further names and addresses.")],
    ca: CaFolder,
    days: Days = 365,
    out: Out = None,
) -> None:
    """Make the certificate of a listener: a broker, a queue, a worker with --bind.

    The file has the certificate and its private key. Peers accept it for each NAME.
    A listener may also connect with it, for example to the other broker of a pair.

      $ requite keys new listener broker.example 10.0.0.5 --ca keys
    """
    from requite.cli.keys.certificates import Authority

    authority, path = Authority.read(ca), place_for(name, ca, out)
    issued = authority.issue_listener([name, *more], days)
    write_new(path, issued.key + issued.certificate)
    host = f"[{name}]" if ":" in name else name
    say(f"wrote {path} (a certificate and its private key; keep it secret)")
    say(
        f"next: requite broker --bind tls://{host}:5555 --tls-certificate {quote(str(path))}"
        f" --tls-ca {quote(str(ca / CA_CERTIFICATE))}"
    )
    say(f"      requite keys new user shop --ca {quote(str(ca))}")
