"""The folder of one installation: what it remembers between runs, and who may use it now.

`state.json` holds ports and secrets (0600): a second run prints the same addresses and keys.
`supervisor.lock` is held for as long as a supervisor lives; the kernel lets go of it with the
process, so a crash leaves nothing to clean up.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import string
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent

_BASE32 = "abcdefghijklmnopqrstuvwxyz234567"
_SECRET = string.ascii_letters + string.digits + "-"  # url-safe without the separator `_`


class AlreadyRunning(Exception):
    """Another supervisor holds this folder."""


def default_home() -> Path:
    """`CLOCKHOUSE_HOME`, or `.clockhouse` in the clone."""
    return Path(os.environ.get("CLOCKHOUSE_HOME") or ROOT / ".clockhouse").resolve()


def write_atomically(path: Path, content: Mapping[str, Any]) -> None:
    """Write JSON that only we may read; a reader sees the old or the new, never a part."""
    aside = path.with_name(path.name + ".new")
    with os.fdopen(os.open(aside, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "w") as file:
        json.dump(content, file, indent=2)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file; empty when there is none."""
    try:
        content = json.loads(path.read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return {}
    return content if isinstance(content, dict) else {}


def new_api_key(prefix: str) -> str:
    """An API key: `<prefix>_<id>_<secret>`."""
    public = "".join(secrets.choice(_BASE32) for _ in range(16))
    return f"{prefix}_{public}_" + "".join(secrets.choice(_SECRET) for _ in range(43))


def _key() -> str:
    return secrets.token_hex(32)


@dataclass(kw_only=True)
class State:
    """What an installation keeps. Everything is made at the first run and stays."""

    installation: str = field(default_factory=lambda: secrets.token_hex(3))
    ports: dict[str, int] = field(default_factory=dict)
    engine_passwords: dict[str, str] = field(default_factory=dict)
    cell_keys: dict[str, str] = field(default_factory=dict)
    secret_key: str = field(default_factory=_key)  # Django's sessions and tokens
    control_installation_key: str = field(default_factory=_key)  # seals cell keys at rest
    cell_installation_key: str = field(default_factory=_key)  # seals target secrets
    router_key: str = field(default_factory=_key)
    email: str = "demo@example.com"
    password: str = field(default_factory=lambda: secrets.token_urlsafe(12))
    api_key: str = field(default_factory=lambda: new_api_key("ch_live"))
    operator_email: str = "operator@example.com"
    operator_password: str = field(default_factory=lambda: secrets.token_urlsafe(12))
    operator_api_key: str = field(default_factory=lambda: new_api_key("ch_op"))

    def engine_password(self, name: str) -> str:
        """The password of an engine, made when it is first asked for."""
        return self.engine_passwords.setdefault(name, secrets.token_hex(16))

    def cell_key(self, name: str) -> str:
        """The hexadecimal signing key of a cell, made when it is first asked for."""
        return self.cell_keys.setdefault(name, _key())


class Home:
    """Paths of an installation, and its lock."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.logs = folder / "logs"
        self.down = folder / "down"  # one file for each process that shall stay down
        self.status = folder / "status.json"  # what the supervisor does now
        self.dev = folder / "dev.json"  # what people and tests need to know
        self._state = folder / "state.json"
        self._lock_file = folder / "supervisor.lock"
        self._lock: int | None = None

    def claim(self) -> None:
        """Become this folder's supervisor until the process ends, or raise `AlreadyRunning`."""
        self.folder.mkdir(mode=0o711, parents=True, exist_ok=True)  # engines pass as `nobody`
        lock = os.open(self._lock_file, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise AlreadyRunning(self._describe_other()) from None
        self._lock = lock
        self.logs.mkdir(mode=0o700, exist_ok=True)
        self.down.mkdir(mode=0o700, exist_ok=True)
        for left in (*self.down.iterdir(), self.dev, self.status):
            left.unlink(missing_ok=True)

    def _describe_other(self) -> str:
        pid = read_json(self.status).get("supervisor")
        console = read_json(self.dev).get("console_url")
        who = f"process {pid}" if pid else "another process"
        where = f", console at {console}" if console else ""
        stop = f" or by `kill {pid}`" if pid else ""
        return f"Clockhouse already runs in {self.folder} ({who}{where}). Stop it there with Ctrl-C{stop}."

    def is_claimed(self) -> bool:
        """Whether a supervisor lives here now."""
        try:
            lock = os.open(self._lock_file, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(lock)
        return False

    def load(self) -> State:
        """What was kept; a new installation's state where there is none."""
        known = read_json(self._state)
        return State(**{name: known[name] for name in State.__dataclass_fields__ if name in known})

    def keep(self, state: State) -> None:
        """Keep the state for the next run."""
        write_atomically(self._state, asdict(state))
