"""How long `make run` takes until all of it is healthy, on a machine whose environment is made."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from deploy.engines import temporary_folder
from tests.api import Api
from tests.bench.frame import Bar, Bench
from tests.stack import Stack


def once() -> Mapping[str, float]:
    """A first start makes clusters and databases; a second one finds the data."""
    with temporary_folder() as folder:
        first, again = _start(folder), _start(folder)
    return {"first_seconds": first, "again_seconds": again}


def _start(folder: Path) -> float:
    """Seconds until it is healthy and answers."""
    began = time.monotonic()
    with Stack(folder=folder) as stack:
        healthy = time.monotonic() - began
        Api(stack.info["api_url"], stack.info["api_key"]).get("/v1/jobs")
    return healthy


BENCH = Bench(
    name="start",
    title="make run until everything is healthy and a demo tenant has its jobs",
    topology="all processes of `make run` on this machine",
    once=once,
    bars=(
        Bar(figure="again_seconds", what="start with data", bar=15, unit="s", better="lower"),
        Bar(figure="first_seconds", what="first start", bar=15, unit="s", better="lower"),
    ),
)
