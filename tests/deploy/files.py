"""The files in deploy/, and the options of servers in them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

import trustme
from tests.cli.command import write_users

from requite.access.passwords import hash_password

ROOT: Final = Path(__file__).parents[2]
DEPLOY: Final = ROOT / "deploy"
COMMAND: Final = "/opt/requite/bin/requite"
CLOSING_S: Final = 10  # what a server takes to close after it has drained


def installed(text: str, root: Path) -> str:
    """Return a file's text with the folders of a machine below `root`, which are created with an
    access file, the credentials of its users and a certificate."""
    for folder in ("/etc/requite", "/var/lib/requite"):
        (root / folder[1:]).mkdir(parents=True, exist_ok=True)
        text = text.replace(folder, f"{root}{folder}")
    write_access(root / "etc/requite/access.toml")
    write_certificate(root / "etc/requite/broker.pem")
    write_users(root / "etc/requite/users", "ann:secret\n")
    write_users(root / "etc/requite/probe", "probe:other\n")
    return text


def write_access(path: Path) -> Path:
    """Write an access file with a user `ann`, and the user `probe` of health checks."""
    users = {"ann": "secret", "probe": "other"}
    tables = (f'[user.{name}]\npassword = "{hash_password(users[name])}"\n' for name in users)
    return write_users(path, "".join(tables))


def write_certificate(path: Path) -> Path:
    """Write a certificate for localhost, and its key."""
    trustme.CA().issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(path)
    path.chmod(0o600)
    return path


def tool(name: str) -> str | None:
    """Return the path of a program of the environment or the machine."""
    beside = ROOT / ".venv" / "bin" / name
    return str(beside) if beside.exists() else shutil.which(name)
