"""The API's requests about task queues, for people who look after them. Pure, like `calls.py`; what
workers send is in `worker_calls.py`."""

from __future__ import annotations

from controlplane.client.pages import Page, reads, reads_page
from controlplane.client.queue_documents import TaskQueue
from controlplane.client.wire import Call, path


def list_queues() -> Call[Page[TaskQueue]]:
    """All task queues by name: what waits, what is under way, who polls."""
    return Call(method="GET", path="/v1/task-queues", read=reads_page(TaskQueue))


def get_queue(queue: str) -> Call[TaskQueue]:
    """A task queue with its workers and the tasks they hold."""
    return Call(method="GET", path=path("/v1/task-queues/{queue}", queue=queue), read=reads(TaskQueue))


def _verb(queue: str, verb: str) -> Call[TaskQueue]:
    return Call(
        method="POST",
        path=path("/v1/task-queues/{queue}", queue=queue) + f":{verb}",
        read=reads(TaskQueue),
        repeatable=True,
    )


def pause_queue(queue: str) -> Call[TaskQueue]:
    """Hand out nothing more of a queue; what is under way goes on."""
    return _verb(queue, "pause")


def resume_queue(queue: str) -> Call[TaskQueue]:
    """Hand out tasks of a queue again."""
    return _verb(queue, "resume")
