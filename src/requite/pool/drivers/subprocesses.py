"""The driver for workers that are processes of this machine, for development and small deployments.

Workers run in separate sessions and outlive the manager; the next one finds them (`records.py`).
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import subprocess
import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import IO, Final

from requite.errors import ConfigurationError
from requite.pool.config import PREFIX
from requite.pool.drivers.base import (
    DriverError,
    Environment,
    KeyedTurns,
    Label,
    check_environment,
    check_workers,
    variables_of,
)
from requite.pool.drivers.records import Record, Records
from requite.pool.inputs import RunningGroup
from requite.storage.private import create_file, make_folder

_log = logging.getLogger("requite.pool")

# The shell records its process id and executes the worker: "$0" is the file, "$@" the command.
_LAUNCH: Final = ("/bin/sh", "-c", 'echo $$ >>"$0" && exec "$@"')
_PASSED: Final = (
    *("PATH", "HOME", "LANG", "LC_*", "TZ", "TMPDIR", "VIRTUAL_ENV", "PYTHON*"),
    "REQUITE_*",
)
# The manager's own settings, which may have passwords, and a port that only one process can have.
_KEPT: Final = (f"{PREFIX}*", "REQUITE_HTTP")
_KILLED_S: Final = 5.0
_POLL_S: Final = 0.02  # between two checks of a stopping process


@dataclass(frozen=True, slots=True)
class SubprocessSettings:
    """Settings of worker processes.

    - `command`: the program and its arguments.
    - `env`: variables in addition to those of the worker protocol, NAME=VALUE.
    - `pass_environment`: names of variables of the manager that workers get, too; `*` and `?` match
      any characters, any one. Without it they get only those that programs generally need, because
      the manager's environment may have secrets.
    - `directory`: working directory; empty: the manager's.
    - `state_dir`: folder of the records of workers, with a subfolder per pool and instance. Empty:
      `requite/pool` in the user's state folder.
    - `log_dir`: folder of the workers' output, one file each; empty: the manager's output.
    - `stop_timeout`: how long a worker may take to finish its requests before it is killed.
    """

    command: tuple[str, ...]
    env: tuple[str, ...] = field(default=(), repr=False)
    pass_environment: tuple[str, ...] = ()
    directory: str = ""
    state_dir: str = ""
    log_dir: str = ""
    stop_timeout_s: float = 30.0

    def __post_init__(self) -> None:
        if not self.command:
            raise ConfigurationError(
                "driver.command is empty; set it to the program of the workers"
            )
        variables_of(self.env)
        for number, name in enumerate(self.pass_environment, start=1):
            if "=" in name:
                raise ConfigurationError(
                    f"driver.pass_environment: item {number} has a value; write it to `env`"
                )

    @property
    def state_folder(self) -> Path:
        """Folder of the records of workers."""
        if self.state_dir:
            return Path(self.state_dir).absolute()
        home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
        return Path(home) / "requite" / "pool"


class SubprocessDriver:
    """Runs workers as processes."""

    workers_max: int = 64

    def __init__(
        self, settings: SubprocessSettings, label: Label, environment: Environment
    ) -> None:
        self._settings: Final = settings
        self._label: Final = label
        self._environment: Final = environment
        self._records: Final = Records(settings.state_folder / label.prefix)
        self._turns: Final = KeyedTurns()
        self._stopping: Final[set[str]] = set()
        self._signalled: Final[set[str]] = set()  # until reaped, which follows the lock's release
        self._children: Final[dict[str, int]] = {}  # process ids, by worker id

    async def list(self) -> Mapping[str, RunningGroup]:
        """Return the groups with running processes."""
        groups: dict[str, RunningGroup] = {}
        for record in await self._living():
            before = groups.get(record.key)
            count = 0 if before is None else before.workers or 0
            ends = record.worker_id in self._stopping and (before is None or before.stopping)
            groups[record.key] = RunningGroup(record.version, count + 1, ends)
        return groups

    async def start(self, key: str, version: str = "", workers: int | None = None) -> None:
        """Start missing processes, stop surplus ones."""
        check_workers(workers, self.workers_max)
        async with self._turns.of(key):
            running = [record for record in await self._living() if record.key == key]
            wanted = max(1, len(running)) if workers is None else workers
            for _ in range(wanted - len(running)):
                await self._spawn(key, version)
            await self._end(running[wanted:])

    async def stop(self, key: str) -> None:
        """Send SIGTERM, and SIGKILL to processes that still run after `stop_timeout_s`."""
        async with self._turns.of(key):
            await self._end([record for record in await self._living() if record.key == key])

    async def close(self) -> None:
        """Reap exited workers; the others keep running."""
        self._reap()

    async def _living(self) -> Sequence[Record]:
        self._reap()
        try:
            records = await asyncio.to_thread(self._records.living)
            return [record for record in records if not self._has_ended(record)]
        except OSError as error:
            raise DriverError(f"driver.state_dir: {error}") from error

    async def _found(self, worker_id: str) -> Record | None:
        self._reap()
        record = await asyncio.to_thread(self._records.find, worker_id)
        return None if record is None or self._has_ended(record) else record

    def _has_ended(self, record: Record) -> bool:
        """Whether a worker has exited although its file is locked: kills its remaining children."""
        if not record.pid or _exists(record.pid):
            return False
        with suppress(ProcessLookupError):
            os.killpg(record.pid, signal.SIGKILL)
        self._records.forget(record.worker_id)
        level = self._level(record.worker_id)
        _log.log(level, "worker %s left processes behind: killed", record.worker_id)
        return True

    # --- starting ---------------------------------------------------------------------------------
    async def _spawn(self, key: str, version: str) -> None:
        worker_id = f"{self._label.prefix}-{uuid.uuid4().hex[:12]}"
        variables = self._variables(key, worker_id)
        self._check_command(variables)
        record = Record(worker_id, key, version)
        try:
            with ExitStack() as stack:
                file = stack.enter_context(self._records.entered(record))
                log = stack.enter_context(self._log_of(worker_id))
                self._children[worker_id] = self._launch(record, variables, file, log)
        except OSError as error:
            raise DriverError(f"cannot start {self._settings.command[0]}: {error}") from error

    def _launch(
        self, record: Record, variables: Mapping[str, str], file: int, log: IO[bytes] | None
    ) -> int:
        path = self._records.path(record.worker_id)
        child = subprocess.Popen(
            [*_LAUNCH, str(path), *self._settings.command],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=dict(variables),
            cwd=self._settings.directory or None,
            pass_fds=(file,),
            start_new_session=True,
        )
        child.returncode = 0  # workers outlive this object; `_reap` waits for them
        return child.pid

    def _variables(self, key: str, worker_id: str) -> dict[str, str]:
        ours = check_environment(self._environment(key, worker_id))
        inherited = _passed_on(os.environ, self._settings.pass_environment)
        return {**inherited, **variables_of(self._settings.env), **ours}

    def _check_command(self, variables: Mapping[str, str]) -> None:
        program = self._settings.command[0]
        if shutil.which(program, path=variables.get("PATH")) is None:
            raise DriverError(f"driver.command: program {program!r} not found")

    def _log_of(self, worker_id: str) -> AbstractContextManager[IO[bytes] | None]:
        if not self._settings.log_dir:
            return nullcontext()
        folder = Path(self._settings.log_dir)
        make_folder(folder)
        return open(create_file(folder / f"{worker_id}.log", os.O_APPEND), "ab")

    def _reap(self) -> None:
        """Reap exited workers, and log their exit codes."""
        for worker_id, pid in [*self._children.items()]:
            code = _exit_code(pid)
            if code is not None:
                del self._children[worker_id]
                level = self._level(worker_id) if code else logging.INFO
                self._signalled.discard(worker_id)
                _log.log(level, "worker %s ended: %s", worker_id, code)

    def _level(self, worker_id: str) -> int:
        """Return the log level for the exit of a worker."""
        is_wanted = worker_id in self._stopping or worker_id in self._signalled
        return logging.INFO if is_wanted else logging.WARNING

    # --- stopping ---------------------------------------------------------------------------------
    async def _end(self, records: Iterable[Record]) -> None:
        ended = {record.worker_id: record for record in records}
        self._stopping.update(ended)
        try:
            await asyncio.gather(*(self._end_one(record) for record in ended.values()))
        finally:
            self._stopping.difference_update(ended)
            self._signalled.intersection_update(self._children)

    async def _end_one(self, record: Record) -> None:
        await self._signal(record, signal.SIGTERM)
        try:
            async with asyncio.timeout(self._settings.stop_timeout_s):
                await self._until_ended(record)
        except TimeoutError:
            _log.warning("worker %s did not stop in time: killed", record.worker_id)
            await self._kill(record)

    async def _kill(self, record: Record) -> None:
        await self._signal(record, signal.SIGKILL)
        try:
            async with asyncio.timeout(_KILLED_S):
                await self._until_ended(record)
        except TimeoutError as error:
            raise DriverError(f"worker {record.worker_id} cannot be killed") from error

    async def _signal(self, record: Record, number: signal.Signals) -> None:
        """Send a signal to the worker; SIGKILL goes to its whole process group."""
        self._signalled.add(record.worker_id)
        pid = await self._pid_of(record)
        with suppress(ProcessLookupError):
            if pid and number is signal.SIGKILL:
                os.killpg(pid, number)
            elif pid:
                os.kill(pid, number)

    async def _pid_of(self, record: Record) -> int:
        """Return the process id, once the process has recorded it; 0 if it has exited."""
        while not record.pid:
            found = await self._found(record.worker_id)
            if found is None:
                return 0
            record = found
            await asyncio.sleep(0 if record.pid else _POLL_S)
        return record.pid

    async def _until_ended(self, record: Record) -> None:
        while await self._found(record.worker_id):  # noqa: ASYNC110 - locks have no event
            await asyncio.sleep(_POLL_S)


def _passed_on(environ: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    """Return the variables of a manager that its workers get: the usual ones, and `names`."""
    return {
        name: value
        for name, value in environ.items()
        if _is_among(name, names) or (_is_among(name, _PASSED) and not _is_among(name, _KEPT))
    }


def _is_among(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _exists(pid: int) -> bool:
    """Whether a process exists, including a zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it has changed its user
        return True
    return True


def _exit_code(pid: int) -> int | None:
    """Return the exit code of a child, or minus its signal; None while it runs."""
    try:
        ended, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:  # other code in this process has waited for it
        return 0
    return os.waitstatus_to_exitcode(status) if ended else None
