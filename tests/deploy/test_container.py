"""The container file in deploy/container: checked by hadolint, and its commands by a broker."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from tests.cli.command import requite, running_broker
from tests.deploy.files import COMMAND, DEPLOY, ROOT, installed, tool

from requite.cli import main
from requite.cli.exit_codes import ExitCode

FILE = DEPLOY / "container" / "Containerfile"
TEXT = FILE.read_text().replace("\\\n", " ")
HADOLINT = tool("hadolint")


@pytest.mark.skipif(HADOLINT is None, reason="no hadolint here: make deploy")
def test_hadolint_has_no_complaint() -> None:
    assert HADOLINT is not None
    ended = subprocess.run([HADOLINT, str(FILE)], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (0, "")


def test_the_images_run_as_a_user_without_rights() -> None:
    assert re.findall(r"^USER (.*)$", TEXT, re.M) == ["65532:65532"]
    after = TEXT.partition("\nUSER ")[2]
    assert not re.search(r"^RUN ", after, re.M)  # nothing in the images belongs to that user


def test_no_command_of_the_images_needs_a_shell() -> None:
    commands = re.findall(r"^ *(?:ENTRYPOINT|HEALTHCHECK .*CMD|CMD) +(.*)$", TEXT, re.M)
    assert len(commands) == 4
    for command in commands:
        assert all(isinstance(word, str) for word in json.loads(command))


def test_what_is_copied_exists_and_is_not_ignored() -> None:
    copied = [
        path
        for words in re.findall(r"^COPY (?!--from)(.*) \S+$", TEXT, re.M)
        for path in words.split()
    ]
    kept = [
        line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line[0] == "!"
    ]
    assert len(copied) > 5
    for path in copied:
        assert (ROOT / path).exists()
        assert path in kept or (path.startswith("requirements/") and "requirements/*.txt" in kept)


def test_the_broker_of_the_example_is_valid(tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text(installed((DEPLOY / "container/broker.toml").read_text(), tmp_path))
    assert main(["broker", "--config", str(file), "--check"]) == ExitCode.OK


@pytest.mark.e2e
def test_the_health_check_passes_while_a_broker_listens(tmp_path: Path) -> None:
    [command] = re.findall(r"HEALTHCHECK .*CMD +(.*)$", TEXT, re.M)
    name, *words = json.loads(command)
    assert name == COMMAND
    default = "mdp://127.0.0.1:5556"
    assert default in words
    access, *there = installed(" ".join(["/etc/requite/access.toml", *words]), tmp_path).split()
    with running_broker("--access", access) as (_broker, url):
        there[there.index(default)] = url
        ended = requite(*there)
        assert ended.code == ExitCode.OK, ended.err
    there[there.index("10")] = "0.2"
    assert requite(*there).code == ExitCode.NO_CONNECTION
