"""Changes of many jobs: what is frozen, shown, applied and stopped."""

from __future__ import annotations

import pytest

from tests.component.controlplane.console.cell import JOB, JOB_ID, OPERATION, SELECTION, Cell
from tests.component.controlplane.console.conftest import Signed, sign_in

pytestmark = pytest.mark.django_db


def test_ticked_rows_are_frozen_and_nothing_is_changed_yet(cell: Cell, owner: Signed) -> None:
    form = {"action": "pause", "job": [JOB_ID, "job_b"], "tag": "mail"}
    answer = owner.browser.post(f"{owner.base}/selections/", form)
    assert answer["Location"] == f"{owner.base}/selections/sel_1/"
    (call,) = cell.asked("POST", "/v1/selections")
    assert call.body == {"filter": {"job_ids": [JOB_ID, "job_b"]}, "action": "pause"}
    page = owner.browser.get(answer["Location"]).content.decode()
    assert "Pause 12 jobs" in page
    assert "Digest &lt;b&gt;" in page
    assert "and 11 more" in page
    assert "tag <code>mail</code>" in page
    assert cell.asked("POST", "/v1/selections/sel_1:apply") == []


def test_without_ticks_the_filters_of_the_list_are_frozen(cell: Cell, owner: Signed) -> None:
    form = {"action": "cancel", "state": "PAUSED", "tag": "mail", "odd": "x", "cursor": "c"}
    asked = owner.browser.post(f"{owner.base}/selections/", form).content.decode()
    assert "No job is ticked" in asked
    assert "tag <code>mail</code>" in asked
    assert cell.asked("POST", "/v1/selections") == []
    owner.browser.post(f"{owner.base}/selections/", {**form, "all": "1"})
    (call,) = cell.asked("POST", "/v1/selections")
    assert call.body == {"filter": {"state": "PAUSED", "tag": "mail"}, "action": "cancel"}


def test_more_ticks_than_can_be_are_refused_not_dropped(cell: Cell, owner: Signed) -> None:
    form = {"action": "pause", "job": [f"job_{n}" for n in range(1001)]}
    answer = owner.browser.post(f"{owner.base}/selections/", form, follow=True)
    assert b"1001 rows are ticked, and at most 1000 can be" in answer.content
    assert cell.asked("POST", "/v1/selections") == []


@pytest.mark.parametrize(
    ("run_at", "said"),
    [("2020-01-01T00:00:00Z", "its 1 run starts as soon as"), ("2099-01-01T00:00:00Z", "at the time it had")],
)
def test_resuming_a_job_for_one_time_says_what_will_be(
    cell: Cell, owner: Signed, run_at: str, said: str
) -> None:
    once = {"type": "ONCE", "run_at": run_at, "time_zone": "UTC"}
    cell.answers[f"GET /v1/jobs/{JOB_ID}"] = (200, {**JOB, "status": "PAUSED", "schedule": once})
    page = owner.browser.get(f"{owner.base}/jobs/{JOB_ID}/resume").content.decode()
    assert said in page
    assert "does not run" not in page


def test_jobs_that_are_over_are_not_selected(cell: Cell, owner: Signed) -> None:
    answer = owner.browser.post(
        f"{owner.base}/selections/", {"action": "pause", "state": "COMPLETED"}, follow=True
    )
    assert b"there is nothing to change" in answer.content
    cell.answers["POST /v1/selections"] = (201, {**SELECTION, "count": 0})
    answer = owner.browser.post(f"{owner.base}/selections/", {"action": "resume", "all": "1"}, follow=True)
    assert b"None of these jobs can be scheduled again" in answer.content
    assert owner.browser.post(f"{owner.base}/selections/", {"action": "explode"}).status_code == 404


def test_what_is_applied_is_what_was_shown(cell: Cell, owner: Signed) -> None:
    url = f"{owner.base}/selections/sel_1/"
    answer = owner.browser.post(url, {"hash": SELECTION["hash"]})
    assert answer["Location"] == f"{owner.base}/operations/op_1/"
    (call,) = cell.asked("POST", "/v1/selections/sel_1:apply")
    assert call.body == {"hash": SELECTION["hash"], "max_per_second": 200}
    cell.answers["POST /v1/selections/sel_1:apply"] = (412, {"detail": "This is not the selection's hash."})
    answer = owner.browser.post(url, {"hash": "00"}, follow=True)
    assert b"This is not the selection&#x27;s hash." in answer.content


def test_an_expired_selection_cannot_be_applied(cell: Cell, owner: Signed) -> None:
    cell.answers["GET /v1/selections/sel_1"] = (200, {**SELECTION, "expires_at": "2020-01-01T00:00:00Z"})
    page = owner.browser.get(f"{owner.base}/selections/sel_1/").content.decode()
    assert "This selection has expired." in page
    assert 'name="hash"' not in page


def test_progress_is_followed_until_the_end(cell: Cell, owner: Signed) -> None:
    url = f"{owner.base}/operations/op_1/"
    page = owner.browser.get(url).content.decode()
    assert "Pause: 5 of 12" in page
    assert "the job is busy" in page
    assert 'hx-trigger="every 1s"' in page
    cell.answers["GET /v1/operations/op_1"] = (
        200,
        {**OPERATION, "state": "DONE", "processed": 12, "done": 10, "finished_at": "2026-11-30T06:42:00Z"},
    )
    over = owner.browser.get(url + "live").content.decode()
    assert "10 jobs paused" in over
    assert "hx-trigger" not in over
    assert "?state=PAUSED" in over


def test_only_who_may_write_stops_or_starts(cell: Cell, owner: Signed) -> None:
    assert owner.browser.post(f"{owner.base}/operations/op_1/stop").status_code == 302
    assert len(cell.asked("POST", "/v1/operations/op_1:stop")) == 1
    viewer = sign_in("viewer")
    for path in ("selections/", "selections/sel_1/", "operations/op_1/stop"):
        assert viewer.browser.post(f"{viewer.base}/{path}", {"action": "pause"}).status_code == 403, path
    assert b"data-tick" not in viewer.browser.get(f"{viewer.base}/jobs/").content
    assert b">Stop<" not in viewer.browser.get(f"{viewer.base}/operations/op_1/").content
    assert len(cell.asked("POST", "/v1/operations/op_1:stop")) == 1
