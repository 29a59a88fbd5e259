"""Task queues: their pages, what pausing says and does, and that links to a queue lead to it."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.console.job_changes import fields_of
from controlplane.console.job_form import DEFAULTS
from tests.component.controlplane.console.cell import (
    JOB,
    JOB_ID,
    QUEUE,
    QUEUE_READ,
    RUN,
    RUN_ID,
    Cell,
)
from tests.component.controlplane.console.conftest import Signed, sign_in

pytestmark = pytest.mark.django_db

NAME = "ledger.v2"
LABEL = f"queue:{NAME}"
PULL_JOB = {**JOB, "target": {"type": "TASK_QUEUE", "task_queue": NAME, "lease_seconds": 60}}
PULLED: dict[str, Any] = {
    **RUN,
    "state": "RUNNING",
    "outcome": None,
    "target_id": LABEL,
    "reason": None,
    "attempts": [],
    "worker_id": "w-<1>",
    "heartbeat_at": "2026-11-30T06:30:00Z",
    "lease_expires_at": "2026-11-30T06:31:00Z",
    "progress": {"rows": 7},
}


def shown(signed: Signed, path: str) -> str:
    answer = signed.browser.get(signed.base + path)
    assert answer.status_code == 200, path
    return str(answer.content.decode())


def test_the_list_says_what_waits_and_that_nobody_polls(cell: Cell, owner: Signed) -> None:
    page = shown(owner, "/queues/")
    assert "No worker has polled this queue for 7 minutes." in page
    assert "10\u202f000+" in page
    assert f'href="{owner.base}/queues/{NAME}/"' in page
    assert f'href="{owner.base}/queues/{NAME}/pause"' in page
    assert 'aria-current="page">Task queues' in page
    part = shown(owner, "/queues/live")
    assert NAME in part
    assert "<html" not in part
    cell.answers["GET /v1/task-queues"] = (200, {"items": [], "next_cursor": None})
    assert "@worker.handles" in shown(owner, "/queues/")


def test_one_queue_shows_its_workers_and_what_they_hold(cell: Cell, owner: Signed) -> None:
    for page in (shown(owner, f"/queues/{NAME}/"), shown(owner, f"/queues/{NAME}/live")):
        assert "w-&lt;1&gt;" in page
        assert "{&quot;rows&quot;: 7}" in page
        assert "none yet" in page
        assert f'href="{owner.base}/runs/{RUN_ID}/"' in page
        assert "Digest &lt;b&gt;" in page
    assert f"target={LABEL.replace(':', '%3A')}" in cell.asked("GET", "/v1/jobs")[0].target
    assert owner.browser.get(f"{owner.base}/queues/other/").status_code == 404


def test_pausing_says_what_it_touches_first(cell: Cell, owner: Signed) -> None:
    url = f"{owner.base}/queues/{NAME}/pause"
    part = owner.browser.get(url, headers={"HX-Request": "true"}).content.decode()
    assert "in it now 10,000+ tasks" in part
    assert cell.asked("POST", f"/v1/task-queues/{NAME}:pause") == []
    after = {**QUEUE_READ, "state": "PAUSED", "backlog": 1, "paused_at": "2026-11-30T06:40:00Z"}
    cell.answers[f"POST /v1/task-queues/{NAME}:pause"] = (200, after)
    said = owner.browser.post(url, follow=True).content.decode()
    assert f"{NAME} is paused. In it until it is resumed: 1 task." in said
    assert len(cell.asked("POST", f"/v1/task-queues/{NAME}:pause")) == 1
    cell.answers[f"GET /v1/task-queues/{NAME}"] = (200, after)
    assert f'href="{owner.base}/queues/{NAME}/resume"' in shown(owner, f"/queues/{NAME}/")
    assert owner.browser.get(f"{owner.base}/queues/{NAME}/explode").status_code == 404


def test_who_may_not_write_pauses_nothing(cell: Cell) -> None:
    viewer = sign_in("viewer")
    url = f"{viewer.base}/queues/{NAME}/pause"
    assert (viewer.browser.get(url).status_code, viewer.browser.post(url).status_code) == (403, 403)
    for path in ("/queues/", f"/queues/{NAME}/"):
        assert "/pause" not in shown(viewer, path)
    assert cell.asked("POST", f"/v1/task-queues/{NAME}:pause") == []


def test_what_names_a_queue_leads_to_it(cell: Cell, owner: Signed) -> None:
    cell.answers["GET /v1/jobs"] = (200, {"items": [PULL_JOB], "next_cursor": None})
    cell.answers[f"GET /v1/jobs/{JOB_ID}"] = (200, PULL_JOB)
    cell.answers["GET /v1/runs"] = (200, {"items": [PULLED], "next_cursor": None, "looked_back_to": None})
    cell.answers[f"GET /v1/runs/{RUN_ID}"] = (200, PULLED)
    letter = {
        "run_id": RUN_ID, "job_id": JOB_ID, "series": 1, "fingerprint": "abc", "reason": "UNKNOWN",
        "target_id": LABEL, "http_status": None, "error": "its holder died with it", "attempt": 1,
        "failed_at": "2026-11-30T06:33:27Z",
    }  # fmt: skip
    group = {
        **letter, "count": 1, "first_failed_at": letter["failed_at"], "last_failed_at": letter["failed_at"],
    }  # fmt: skip
    cell.answers["GET /v1/dlq"] = (
        200,
        {"groups": [group], "truncated": False, "items": [letter], "next_cursor": None},
    )
    for path in ("/", "/jobs/", f"/jobs/{JOB_ID}/", "/runs/", f"/runs/{RUN_ID}/", "/dlq/"):
        page = shown(owner, path)
        assert f'href="{owner.base}/queues/{NAME}/"' in page, path
        assert "/targets/queue" not in page, path


def test_a_pulled_run_shows_its_worker_and_how_far_it_is(cell: Cell, owner: Signed) -> None:
    cell.answers[f"GET /v1/runs/{RUN_ID}"] = (200, PULLED)
    page = shown(owner, f"/runs/{RUN_ID}/")
    assert "Held by" in page
    assert "w-&lt;1&gt;" in page
    assert "&quot;rows&quot;: 7" in page
    assert "Lease ends" in page
    ended = {
        **PULLED, "state": "UNKNOWN", "reason": "lost with its holder", "worker_id": "w-2",
        "attempts": [{**RUN["attempts"][0], "outcome": "LOST", "status": None, "error": "worker lost"}],  # type: ignore[index]
    }  # fmt: skip
    cell.answers[f"GET /v1/runs/{RUN_ID}"] = (200, ended)
    page = shown(owner, f"/runs/{RUN_ID}/")
    assert "Nobody knows whether it was done" in page
    assert "Polled last by" in page
    assert "X-Fencing-Token" not in page  # nothing was called
    waits = {**PULLED, "state": "READY", "worker_id": None, "heartbeat_at": None, "progress": None}
    cell.answers[f"GET /v1/runs/{RUN_ID}"] = (200, waits)
    assert "It waits for a worker that polls" in shown(owner, f"/runs/{RUN_ID}/")


def test_queues_whose_names_are_words_of_addresses(cell: Cell, owner: Signed) -> None:
    cell.answers["GET /v1/task-queues/live"] = (200, {**QUEUE, "task_queue": "live", "seen": [], "held": []})
    assert "<html" in shown(owner, "/queues/live/")


# --- jobs for queues -----------------------------------------------------------------------------
def test_a_job_for_a_queue_is_made_with_its_lease(cell: Cell, owner: Signed) -> None:
    page = shown(owner, f"/jobs/new?target_kind=TASK_QUEUE&task_queue={NAME}")
    assert 'value="TASK_QUEUE" checked' in page
    assert f'<option value="{NAME}">' in page  # queues that are there are offered
    cell.answers["POST /v1/jobs"] = (201, PULL_JOB)
    fields = {
        **DEFAULTS, "kind": "NOW", "target_kind": "TASK_QUEUE", "task_queue": NAME, "lease_seconds": "90",
        "target_id": "tgt_echo", "headers": "X-A: 1", "delivery": "AT_MOST_ONCE",
        "region_policy": "SINGLE_REGION",
    }  # fmt: skip
    assert owner.browser.post(f"{owner.base}/jobs/new", fields).status_code == 302
    (call,) = cell.asked("POST", "/v1/jobs")
    assert call.body["target"] == {"type": "TASK_QUEUE", "task_queue": NAME, "lease_seconds": 90}
    assert (call.body["delivery"], call.body["region_policy"]) == ("AT_MOST_ONCE", "SINGLE_REGION")
    assert "headers" not in call.body  # a worker is handed none


def test_what_the_cell_says_of_a_queue_is_at_its_field(cell: Cell, owner: Signed) -> None:
    faults = [
        {"pointer": "/target/task_queue", "detail": "is no name"},
        {"pointer": "/delivery", "detail": "AT_MOST_ONCE needs one region"},
    ]
    cell.answers["POST /v1/jobs"] = (422, {"detail": "2 faults", "errors": faults})
    fields = {**DEFAULTS, "kind": "NOW", "target_kind": "TASK_QUEUE", "task_queue": "a b"}
    page = owner.browser.post(f"{owner.base}/jobs/new", fields).content.decode()
    assert '<div id="fault-task_queue"><p class="fault">is no name</p></div>' in page
    assert '<div id="fault-delivery"><p class="fault">AT_MOST_ONCE needs one region</p></div>' in page


def test_an_edit_can_move_a_job_from_a_target_to_a_queue_and_changes_its_lease(
    cell: Cell, owner: Signed
) -> None:
    url = f"{owner.base}/jobs/{JOB_ID}/edit"
    cell.answers[f"PATCH /v1/jobs/{JOB_ID}"] = (200, {**JOB, "version": 2})
    moved = {"target_kind": "TASK_QUEUE", "task_queue": NAME, "lease_seconds": "60"}
    owner.browser.post(url, {**fields_of(JOB), **moved, "version": "1"})
    cell.answers[f"GET /v1/jobs/{JOB_ID}"] = (200, PULL_JOB)
    assert f'value="{NAME}"' in shown(owner, f"/jobs/{JOB_ID}/edit")
    owner.browser.post(url, {**fields_of(PULL_JOB), "lease_seconds": "120", "version": "1"})
    owner.browser.post(url, {**fields_of(PULL_JOB), "version": "1"})  # nothing was changed
    first, second = (call.body for call in cell.asked("PATCH", f"/v1/jobs/{JOB_ID}"))
    assert first == {"target": {"type": "TASK_QUEUE", "task_queue": NAME, "lease_seconds": 60}}
    assert second == {"target": {"lease_seconds": 120}}


def test_at_most_once_is_offered_to_jobs_of_one_region(cell: Cell, owner: Signed) -> None:
    kept = '<option value="AT_MOST_ONCE" disabled>'
    assert kept in shown(owner, f"/jobs/{JOB_ID}/edit")
    cell.answers[f"GET /v1/jobs/{JOB_ID}"] = (200, {**JOB, "region_policy": "SINGLE_REGION"})
    assert kept not in shown(owner, f"/jobs/{JOB_ID}/edit")
    assert kept not in shown(owner, "/jobs/new")
