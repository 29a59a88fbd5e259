"""Starting a child process that cannot outlive its parent, under an identity that fits it.

PostgreSQL refuses to run as root. Root therefore starts engines as `nobody` where `nobody`
can reach the binaries and the data; under a private home folder, where it cannot, root
starts them inside a user namespace that shows the same files as another user's.
"""

from __future__ import annotations

import contextlib
import ctypes
import enum
import os
import pwd
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

_PR_SET_PDEATHSIG = 1
_NAMESPACE_ID = "65534"
# Loaded before any fork: a child between fork and exec must not import or load anything.
_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


class Identity(enum.Enum):
    """Under whose name an engine runs."""

    SELF = "self"  # an ordinary user: as that user
    NOBODY = "nobody"  # root, and nobody can reach everything
    NAMESPACE = "namespace"  # root, in a user namespace: files stay root's


class CannotStart(Exception):
    """An engine or process cannot be started; the message says what to do about it."""


def choose_identity(binary: Path, data: Path) -> Identity:
    """The identity under which `binary` can run on the folder `data` (whose parent exists)."""
    if os.geteuid() != 0:
        return Identity.SELF
    if _succeeds(_probe(binary, data), Identity.NOBODY):
        return Identity.NOBODY
    if shutil.which("unshare") and _succeeds(_probe(binary, data), Identity.NAMESPACE):
        return Identity.NAMESPACE
    raise CannotStart(
        f"root may not run {binary.name}, and neither the user 'nobody' nor a user namespace can reach"
        f" both {binary.parent} and {data.parent}. Move the folder to where every user may read"
        " (chmod o+rx on its parents), or start as an ordinary user."
    )


def _probe(binary: Path, data: Path) -> list[str]:
    return ["sh", "-c", 'cd "$1" && exec "$2" --version', "sh", str(data.parent), str(binary)]


def _succeeds(command: Sequence[str], identity: Identity) -> bool:
    done = subprocess.run(
        as_identity(command, identity),
        **_credentials(identity),  # type: ignore[call-overload]
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
    )
    return bool(done.returncode == 0)


def as_identity(command: Sequence[str], identity: Identity) -> list[str]:
    """The command line that runs `command` under `identity` (credentials apart)."""
    if identity is Identity.NAMESPACE:
        return ["unshare", "--user", f"--map-user={_NAMESPACE_ID}", f"--map-group={_NAMESPACE_ID}", *command]
    return list(command)


def _credentials(identity: Identity) -> dict[str, object]:
    if identity is not Identity.NOBODY:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def owner_of_files(identity: Identity) -> tuple[int, int]:
    """User and group ids that must own an engine's files."""
    if identity is Identity.NOBODY:
        nobody = pwd.getpwnam("nobody")
        return nobody.pw_uid, nobody.pw_gid
    return os.geteuid(), os.getegid()


def take_over(folder: Path, identity: Identity) -> None:
    """Make `folder` and all in it belong to the identity (a clone may have moved between them)."""
    uid, gid = owner_of_files(identity)
    if folder.stat().st_uid == uid:
        return
    if os.geteuid() != 0:
        raise CannotStart(f"{folder} belongs to another user: start as that user, or remove it.")
    for path in (folder, *folder.rglob("*")):
        os.chown(path, uid, gid, follow_symlinks=False)


def run(command: Sequence[str], identity: Identity, *, env: Mapping[str, str] | None = None) -> str:
    """Run a command to its end; its output, which becomes the message if it fails."""
    done = subprocess.run(
        as_identity(command, identity),
        **_credentials(identity),  # type: ignore[call-overload]
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd="/",
        env=None if env is None else dict(env),
    )
    if done.returncode != 0:
        raise CannotStart(f"{command[0]} failed ({done.returncode}):\n{done.stdout[-2000:]}")
    return str(done.stdout)


def spawn(
    command: Sequence[str],
    *,
    log: IO[bytes] | int,
    identity: Identity = Identity.SELF,
    death_signal: signal.Signals = signal.SIGTERM,
    cwd: Path | str = "/",
    env: Mapping[str, str] | None = None,
    stdin: bytes | None = None,
) -> subprocess.Popen[bytes]:
    """Start a child in a session of its own that gets `death_signal` when we die.

    Call it from a thread that lives as long as the child shall: Linux sends the signal when
    the *thread* that forked ends. A session of its own keeps a Ctrl-C at the terminal from
    reaching the children: the supervisor stops them in its order.
    """
    parent = os.getpid()

    def before_exec() -> None:
        if _LIBC is not None:
            _LIBC.prctl(_PR_SET_PDEATHSIG, int(death_signal), 0, 0, 0)
            if os.getppid() != parent:  # died between fork and prctl
                os._exit(1)

    child: subprocess.Popen[bytes] = subprocess.Popen(
        as_identity(command, identity),
        **_credentials(identity),  # type: ignore[call-overload]
        stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
        stdout=log,
        stderr=subprocess.STDOUT,
        cwd=cwd,
        env=None if env is None else dict(env),
        start_new_session=True,
        preexec_fn=before_exec,
    )
    if stdin is not None and child.stdin is not None:
        try:
            child.stdin.write(stdin)
            child.stdin.close()
        except BrokenPipeError:
            child.wait()  # it died at once; its log tells why
    return child


def stop(
    child: subprocess.Popen[bytes], *, how: signal.Signals = signal.SIGTERM, grace_seconds: float = 10.0
) -> None:
    """Ask a child to stop, and kill it when it does not within the grace."""
    if child.poll() is not None:
        return
    child.send_signal(how)
    try:
        child.wait(grace_seconds)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


#: In the environment of every child of a supervisor: the home it belongs to.
MARK = "CLOCKHOUSE_SUPERVISED"


def end_leftovers(folder: Path, program: str, *, how: signal.Signals = signal.SIGINT) -> None:
    """End every `program` that still works in `folder`: an engine a killed supervisor left behind.

    Engines have their data folder as working folder, so that no pid file need be trusted:
    pids are reused, and a pid file survives what wrote it.
    """

    def is_left(process: Path) -> bool:
        return (
            os.readlink(process / "cwd") == str(folder.resolve())
            and Path(os.readlink(process / "exe")).name == program
        )

    _end_all(is_left, how=how, grace_seconds=5.0)


def end_marked(home: Path) -> None:
    """End every process that carries the mark of this home."""
    mark = f"{MARK}={home}".encode()

    def is_left(process: Path) -> bool:
        return mark in (process / "environ").read_bytes().split(b"\0")

    _end_all(is_left, how=signal.SIGTERM, grace_seconds=2.0)


def _end_all(is_left: Callable[[Path], bool], *, how: signal.Signals, grace_seconds: float) -> None:
    deadline = time.monotonic() + grace_seconds
    asked: set[int] = set()
    while left := list(_processes(is_left)):
        if time.monotonic() > deadline:
            if how is signal.SIGKILL:
                raise CannotStart(f"process {left[0]} was left behind by an earlier run and does not end.")
            how = signal.SIGKILL
            asked.clear()
            deadline = time.monotonic() + 10
        for pid in left:
            if pid not in asked:
                asked.add(pid)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, how)
        time.sleep(0.02)


def _processes(is_left: Callable[[Path], bool]) -> Iterator[int]:
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if int(process.name) != os.getpid() and is_left(process):
                yield int(process.name)
        except OSError:  # gone meanwhile, or another user's
            continue
