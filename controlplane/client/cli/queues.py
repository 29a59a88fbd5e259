"""`clockhouse queues`"""

from __future__ import annotations

from typing import Annotated

import typer

from controlplane.client.cli import queue_tables
from controlplane.client.cli.session import Session, command, documents
from controlplane.client.queue_documents import TaskQueue

app = typer.Typer(no_args_is_help=True, help="Task queues: work that workers fetch.")

QueueName = Annotated[str, typer.Argument(metavar="QUEUE", help="Its name.")]


@command(app, "list")
def list_(session: Session) -> None:
    """List queues: what waits, what is under way, who polls."""
    queues = list(session.client.queues.list())
    session.answer(documents(queues), lambda: queue_tables.queues_table(queues, session.now))


@command(app, "get")
def get(session: Session, queue: QueueName) -> None:
    """Show a queue with its workers and the tasks they hold."""
    _show(session, session.client.queues.get(queue))


@command(app, "pause")
def pause(session: Session, queue: QueueName) -> None:
    """Hand out nothing more of a queue. Tasks gather; what is under way goes on."""
    _show(session, session.client.queues.pause(queue))


@command(app, "resume")
def resume(session: Session, queue: QueueName) -> None:
    """Hand out tasks of a queue again."""
    _show(session, session.client.queues.resume(queue))


def _show(session: Session, queue: TaskQueue) -> None:
    session.answer(queue.raw, lambda: queue_tables.queue_card(queue, session.now))
