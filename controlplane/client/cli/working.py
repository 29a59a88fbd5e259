"""`clockhouse worker`"""

from __future__ import annotations

import importlib
import logging
import sys
from typing import Annotated, Any

import typer

from controlplane.client.cli.session import Session, Wrong, command
from controlplane.client.worker import Worker

app = typer.Typer(no_args_is_help=True, help="Pull workers.")


_HELP = """Work on tasks until SIGTERM. Handlers then finish; what they do not finish is given back.

With this in `tasks.py`, `clockhouse worker run tasks:worker` does what a job with `--queue ledger` asks for:

\b
from clockhouse import Task, Worker
worker = Worker()
@worker.handles("ledger")
def rebuild(task: Task) -> dict:
    return {"done": task.payload}
"""


@command(app, "run", help=_HELP)
def run(
    session: Session,
    handler: Annotated[
        str, typer.Argument(metavar="MODULE:NAME", help="A Worker, or a function (with --queue).")
    ],
    queue: Annotated[
        str | None, typer.Option("--queue", "-q", help="The queue that a function works on.")
    ] = None,
    concurrency: Annotated[int, typer.Option("--concurrency", "-c", help="Tasks at once.")] = 8,
    drain: Annotated[float, typer.Option(help="Seconds that handlers have to finish at the end.")] = 20.0,
    worker_id: Annotated[str | None, typer.Option(help="Shown to people; made up if absent.")] = None,
) -> None:
    """Work on tasks."""
    logging.basicConfig(
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(message)s",
        datefmt="%Y-%m-%dT%H:%M:%S%z",
        stream=sys.stderr,
    )
    logging.getLogger("httpx").setLevel(logging.WARNING)
    found = _imported(handler)
    if isinstance(found, Worker):
        if queue is not None:
            raise Wrong(f"{handler} is a Worker, which knows its queues; --queue goes with a function")
        worker = found
    elif callable(found):
        if queue is None:
            raise Wrong(f"{handler} is a function; --queue says what it works on")
        worker = Worker(
            profile=session.profile, concurrency=concurrency, drain_seconds=drain, worker_id=worker_id
        )
        worker.handles(queue)(found)
    else:
        raise Wrong(f"{handler} is neither a Worker nor a function")
    worker.run()


def _imported(name: str) -> Any:
    module_name, there, attribute = name.partition(":")
    if not there or not module_name or not attribute:
        raise Wrong(f"{name!r} is not of the form module:name")
    if "" not in sys.path:
        sys.path.insert(0, "")  # as `python -m` does: the modules of this folder
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as missing:
        if missing.name is not None and module_name.startswith(missing.name):
            raise Wrong(f"there is no module {module_name} (from here, or installed)") from None
        raise
    try:
        return getattr(module, attribute)
    except AttributeError:
        raise Wrong(f"{module_name} has no {attribute}") from None
