"""Environments beside our own, for programs of others that pin libraries which we use, too.

One is made at its first use, from hashed requirements, under a lock that processes share.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

_REQUIREMENTS = Path(__file__).resolve().parent.parent / "deploy" / "requirements"
_FOLDER = Path(sys.prefix) / "stand-ins"


def environment(
    name: str, requirements: str, *, python: str = sys.executable, wheels_only: bool = True
) -> Path:
    """The folder of an environment, made unless it is what the requirements say."""
    file = _REQUIREMENTS / requirements
    folder, stamp = _FOLDER / name, _FOLDER / f"{name}.installed"
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    _FOLDER.mkdir(exist_ok=True)
    with (_FOLDER / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.exists() or stamp.read_text() != digest:
            stamp.unlink(missing_ok=True)
            shutil.rmtree(folder, ignore_errors=True)
            subprocess.run([python, "-m", "venv", folder], check=True)
            subprocess.run(
                [
                    *(folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--require-hashes"),
                    "--disable-pip-version-check",
                    *(("--only-binary", ":all:") if wheels_only else ()),
                    *("--requirement", file),
                ],
                check=True,
            )
            stamp.write_text(digest)
    return folder
