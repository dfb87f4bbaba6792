"""Compile the core with mypyc when a wheel is built, where that is possible.

`REQUITE_PURE=1` builds the pure wheel. `REQUITE_PURE=0` fails if the core cannot be compiled. If it
is not set, the core is compiled if there is a C compiler and the headers of this Python. An
editable installation is always pure. Flags in `CFLAGS` come last, so they override ours.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import sysconfig
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# Protocols, framings and what they build on; the host and its links. In `src`; a folder stands for
# all its modules.
COMPILED: Final = (
    "requite/backoff.py",
    "requite/chronicle.py",
    "requite/engine.py",
    "requite/principal.py",
    "requite/request.py",
    "requite/trace_context.py",
    "requite/value.py",
    "requite/core",
    "requite/framing",
    "requite/protocols",
    "requite/shell/admission.py",
    "requite/shell/bandwidth.py",
    "requite/shell/connections.py",
    "requite/shell/fair_queue.py",
    "requite/shell/feeder.py",
    "requite/shell/guarding.py",
    "requite/shell/host.py",
    "requite/shell/ledger.py",
    "requite/shell/limiter.py",
    "requite/shell/link.py",
    "requite/shell/outbox.py",
    "requite/shell/owners.py",
    "requite/shell/partial_messages.py",
    "requite/shell/pending_links.py",
    "requite/shell/uses.py",
    "requite/shell/warnings.py",
)
# Later versions of mypyc may compile other constructs wrongly: try the tests before a change.
_COMPILER: Final = ("mypy>=2.4,<2.5", "setuptools>=77")
_WITHOUT_SYMBOLS: Final = ["-s"] if sys.platform == "linux" else []
_PURE: Final = "REQUITE_PURE"
_UNITS: Final = 16
# mypyc names files relative to the folder where it ran, which neither Python nor `linecache` finds.
_CODE: Final = r"""
#include <Python.h>
#include <stdio.h>
#include <string.h>

static PyCodeObject *code_at(const char *filename, const char *name, int line, PyObject *globals) {
    char path[4096];
    PyObject *module = PyDict_GetItemString(globals, "__file__");
    PyObject *own = module == NULL ? NULL : PyUnicode_EncodeFSDefault(module);
    const char *folder = own == NULL ? "" : PyBytes_AS_STRING(own);
    const char *end = strrchr(folder, '/');
    const char *last = strrchr(filename, '/');
    if (end != NULL && last != NULL) {
        int size = snprintf(path, sizeof path, "%.*s%s", (int)(end - folder), folder, last);
        if (0 < size && size < (int)sizeof path) {
            filename = path;
        }
    }
    PyErr_Clear();
    PyCodeObject *code = PyCode_NewEmpty(filename, name, line);
    Py_XDECREF(own);
    return code;
}

"""


def compiled_modules(source: Path) -> list[str]:
    """Return the files to compile, relative to the folder `source`."""
    paths = [
        path
        for name in COMPILED
        for path in ([source / name] if name.endswith(".py") else (source / name).rglob("*.py"))
        if path.name != "__init__.py"
    ]
    return sorted(str(path.relative_to(source)) for path in paths)


def lacking() -> str:
    """Return what is missing for compiling, and "" if nothing is."""
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")[0]
    if shutil.which(compiler) is None:
        return f"there is no C compiler ({compiler})"
    headers = Path(sysconfig.get_path("include"))
    if not (headers / "Python.h").exists():
        return f"there are no headers of this Python ({headers}/Python.h)"
    return ""


class CompiledCore(BuildHookInterface):
    """Adds the compiled modules to a wheel, next to their sources."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """Return what a build requires: nothing if it is pure."""
        return list(_COMPILER) if self._compiles() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, if this build does."""
        if version == "editable" or not self._compiles():
            return
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        source = Path(self.root, "src")
        target = Path(self.root, "build", "compiled", sysconfig.get_config_var("SOABI"))
        library = compile_core(source, target)
        build_data["force_include"].update(
            {str(path): str(path.relative_to(library)) for path in sorted(library.rglob("*.so"))}
        )

    def _compiles(self) -> bool:
        wish = os.environ.get(_PURE, "")
        if wish not in ("", "0", "1"):
            raise SystemExit(f"{_PURE} is 0, 1 or not set, not {wish!r}")
        reason = lacking()
        if wish == "0" and reason:
            raise SystemExit(f"cannot compile: {reason}")
        return wish != "1" and not reason


def compile_core(source: Path, target: Path) -> Path:
    """Compile the core to extension modules; return their folder, which is below `target`."""
    from mypyc.build import mypycify
    from setuptools import Distribution
    from setuptools.command.build_ext import build_ext

    class Build(build_ext):
        """Compiles the sources of one extension at once; setuptools has one process for each."""

        def build_extensions(self) -> None:
            # Every shim includes this header, which takes 0.2 s, or 0.03 s precompiled, by GCC.
            precompiled = generated / "precompiled" / "Python.h.gch"
            precompiled.parent.mkdir()
            header = Path(sysconfig.get_path("include"), "Python.h")
            folders = [f"-I{folder}" for folder in self.compiler.include_dirs]
            options = [*folders, *core.extra_compile_args, "-x", "c-header", str(header)]
            self.compiler.spawn([*self.compiler.compiler_so, *options, "-o", str(precompiled)])
            super().build_extensions()

        def build_extension(self, extension: Any) -> None:
            def compiled(unit: str) -> list[str]:
                made: list[str] = self.compiler.compile(
                    [unit],
                    output_dir=self.build_temp,
                    include_dirs=extension.include_dirs,
                    extra_postargs=extension.extra_compile_args,
                )
                return made

            with ThreadPoolExecutor(os.cpu_count()) as pool:
                for made in pool.map(compiled, extension.sources):
                    extension.extra_objects += made
            extension.sources = []
            super().build_extension(extension)

    library, generated = target / "lib", target / "c"
    shutil.rmtree(target, ignore_errors=True)
    here = Path.cwd()
    # Tracebacks name the files relative to this folder, and `_CODE` completes their names.
    os.chdir(source)
    try:
        options = [
            "--config-file=",
            "--ignore-missing-imports",
            f"--python-version={sys.version_info.major}.{sys.version_info.minor}",
            f"--cache-dir={target / 'mypy'}",
        ]
        core, *shims = mypycify(
            [*options, *compiled_modules(source)],
            opt_level="2",
            debug_level="0",
            multi_file=True,
            group_name="requite",
            target_dir=str(generated),
        )
        _give_code_its_path(generated / "exc_ops.c")
        core.sources = _units(core.sources, generated)
        flags = [*core.extra_compile_args, *shlex.split(os.environ.get("CFLAGS", ""))]
        for extension in (core, *shims):
            extension.extra_compile_args = flags
            extension.extra_link_args += _WITHOUT_SYMBOLS
            extension.include_dirs.insert(0, str(generated / "precompiled"))
        build = Build(Distribution({"name": "requite", "ext_modules": [core, *shims]}))
        build.build_lib, build.build_temp = str(library), str(target / "objects")
        build.parallel = os.cpu_count()
        build.ensure_finalized()
        build.run()
    finally:
        os.chdir(here)
    return library


def _give_code_its_path(path: Path) -> None:
    """Make mypyc's frames name the whole path of the source, which lies next to the module."""
    text = path.read_text()
    call = "PyCode_NewEmpty(filename, funcname, line)"
    if text.count(call) != 1:
        raise SystemExit(f"cannot compile: {path.name} of this mypyc has no {call}")
    path.write_text(_CODE + text.replace(call, "code_at(filename, funcname, line, globals)"))


def _units(sources: Sequence[str], folder: Path) -> list[str]:
    """Write files that include the sources, of about equal size; return their paths.

    The headers take a third of a second per file. So 16 files take a seventh less than 190.
    """
    shares: list[list[Path]] = [[] for _ in range(_UNITS)]
    for path in sorted(map(Path, sources), key=lambda path: path.stat().st_size, reverse=True):
        min(shares, key=lambda share: sum(each.stat().st_size for each in share)).append(path)
    units = []
    for number, share in enumerate(shares):
        unit = folder / f"unit_{number}.c"
        unit.write_text("".join(f'#include "{each.name}"\n' for each in share))
        units.append(str(unit))
    return units
