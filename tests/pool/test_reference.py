"""The reference page of pool.toml names every setting with its default."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from requite.pool.config import PoolConfig
from requite.pool.drivers.choice import KINDS
from requite.pool.drivers.docker import DockerSettings
from requite.pool.drivers.manifests import KubernetesSettings
from requite.pool.drivers.subprocesses import SubprocessSettings
from requite.pool.drivers.systemd import SystemdSettings

PAGE = (Path(__file__).parents[2] / "docs/reference/pool-toml.md").read_text(encoding="utf-8")
DRIVERS = {
    "subprocess": SubprocessSettings,
    "docker": DockerSettings,
    "kubernetes": KubernetesSettings,
    "systemd": SystemdSettings,
}


def sections() -> Iterator[tuple[str, Any, Any]]:
    """Yield the name, the default and the section class of each setting outside of drivers."""
    for section, kind in get_type_hints(PoolConfig).items():
        for each in fields(kind):
            if (section, each.name) != ("driver", "settings"):
                yield f"{section}.{each.name.removesuffix('_s')}", each.default, kind


def rows(text: str) -> list[list[str]]:
    """Return the rows of the tables in a text, as lists of cells."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


@pytest.mark.parametrize(
    ("name", "default"), [each[:2] for each in sections()], ids=[each[0] for each in sections()]
)
def test_the_page_names_every_setting_with_its_default(name: str, default: Any) -> None:
    row = next((row for row in rows(PAGE) if f"`{name}`" in row[0]), None)
    assert row is not None, f"{name} is not on the page"
    names = [each.strip(" `") for each in row[0].split(",")]
    shown = dict(zip(names, [each.strip(" `") for each in row[1].split(",")], strict=False))
    if isinstance(default, bool):
        assert shown[name] == str(default).lower()
    elif isinstance(default, float | int) and default is not MISSING:
        assert float(shown[name]) == default


@pytest.mark.parametrize("kind", KINDS)
def test_the_page_names_every_driver_with_its_settings(kind: str) -> None:
    _, heading, text = PAGE.partition(f"\n### {kind}\n")
    assert heading
    text = text.partition("\n### ")[0]
    for each in fields(DRIVERS[kind]) if kind in DRIVERS else ():
        name = each.name.removesuffix("_s")
        assert name == "env" or any(f"`{name}`" in row[0] for row in rows(text)), name
