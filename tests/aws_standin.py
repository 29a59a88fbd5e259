"""A local AWS: a server in an environment of its own, because it pins libraries that we use, too."""

from __future__ import annotations

import os
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from deploy.ports import LOOPBACK, Reservation
from tests.environments import environment
from tests.waiting import eventually_sync


@contextmanager
def aws_server(folder: Path, *services: str) -> Iterator[str]:
    """The address of a server of some services (`s3`, `dynamodb`…) that starts empty and ends with
    the block."""
    port = Reservation()
    url = f"http://{LOOPBACK}:{port.port}"
    with (folder / "aws.log").open("wb") as log:
        server = subprocess.Popen(
            [environment("aws", "aws-standin.txt") / "bin" / "python", "-m", "ministack"],
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
