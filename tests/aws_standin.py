"""A local AWS: a server in an environment of its own, because it pins libraries that we use, too.

The environment is made at the first use, from hashed requirements, under a lock that processes share.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from deploy.ports import LOOPBACK, Reservation
from tests.waiting import eventually_sync

_ROOT = Path(__file__).resolve().parent.parent
_REQUIREMENTS = _ROOT / "deploy" / "requirements" / "aws-standin.txt"
_FOLDER = Path(sys.prefix) / "stand-ins"


def _environment() -> Path:
    """The folder of the environment, made unless it is what the requirements say."""
    folder, stamp = _FOLDER / "aws", _FOLDER / "aws.installed"
    digest = hashlib.sha256(_REQUIREMENTS.read_bytes()).hexdigest()
    _FOLDER.mkdir(exist_ok=True)
    with (_FOLDER / "aws.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.exists() or stamp.read_text() != digest:
            stamp.unlink(missing_ok=True)
            shutil.rmtree(folder, ignore_errors=True)
            subprocess.run([sys.executable, "-m", "venv", folder], check=True)
            subprocess.run(
                [
                    *(folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--require-hashes"),
                    *(
                        "--disable-pip-version-check",
                        "--only-binary",
                        ":all:",
                        "--requirement",
                        _REQUIREMENTS,
                    ),
                ],
                check=True,
            )
            stamp.write_text(digest)
    return folder


@contextmanager
def aws_server(folder: Path, *services: str) -> Iterator[str]:
    """The address of a server of some services (`s3`, `dynamodb`…) that starts empty and ends with
    the block."""
    port = Reservation()
    url = f"http://{LOOPBACK}:{port.port}"
    with (folder / "aws.log").open("wb") as log:
        server = subprocess.Popen(
            [_environment() / "bin" / "python", "-m", "ministack"],
            cwd=folder,
            env={
                **os.environ,
                "BIND_HOST": LOOPBACK,
                "GATEWAY_PORT": str(port.port),
                "SERVICES": ",".join(services),
            },
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            eventually_sync(lambda: _answers(url, server), timeout=90)
            yield url
        finally:
            server.terminate()
            server.wait(10)
            port.release()


def _answers(url: str, server: subprocess.Popen[bytes]) -> bool:
    assert server.poll() is None, "the stand-in ended"
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:  # noqa: S310
            return bool(answer.status)
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
