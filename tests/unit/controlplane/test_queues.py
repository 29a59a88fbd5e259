"""Each task has a queue of its nature, and what beat gives is not done twice in a row."""

from __future__ import annotations

import pytest

from controlplane.celery import DRIVING, LONG, QUEUES, SENDING, app
from deploy.processes import _QUEUES

WANTED = {
    "controlplane.moves.tasks.drive_move": DRIVING,
    "controlplane.topology.tasks.go_on_relocating": DRIVING,
    "controlplane.regions.tasks.follow_owners": DRIVING,
    "controlplane.events.tasks.run_outbox_item": DRIVING,
    "controlplane.notifications.tasks.send": SENDING,
    "controlplane.custody.tasks.run_export": LONG,
    "billing.exports.tasks.run_export": LONG,
    "billing.tasks.recompute_dirty_days": LONG,
}


@pytest.mark.parametrize(("task", "queue"), WANTED.items())
def test_a_task_goes_where_its_nature_is(task: str, queue: str) -> None:
    assert app.amqp.router.route({}, task)["queue"].name == queue


def test_every_queue_has_a_worker() -> None:
    assert tuple(_QUEUES) == QUEUES


def test_what_beat_gives_ends_before_it_gives_it_again() -> None:
    entries = app.conf.beat_schedule
    assert {n: e["options"]["expires"] for n, e in entries.items()} == {
        name: entry["schedule"] for name, entry in entries.items()
    }
