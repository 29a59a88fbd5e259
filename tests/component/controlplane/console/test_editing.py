"""Edits and copies of jobs: what is sent, and what is said when somebody or something was first."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.console.job_changes import fields_of
from tests.component.controlplane.console.cell import JOB, JOB_ID, Cell
from tests.component.controlplane.console.conftest import Signed

pytestmark = pytest.mark.django_db

SHOWN: dict[str, Any] = {**JOB, "payload": {"user": 1}}
del SHOWN["payload_hidden"]


@pytest.fixture
def url(cell: Cell, owner: Signed) -> str:
    cell.answers[f"GET /v1/jobs/{JOB_ID}"] = (200, SHOWN)
    cell.answers[f"PATCH /v1/jobs/{JOB_ID}"] = (200, {**SHOWN, "version": 2})
    return f"{owner.base}/jobs/{JOB_ID}/edit"


def form(**changed: str) -> dict[str, str]:
    return {**fields_of(SHOWN), "version": "1", **changed}


def patched(cell: Cell) -> list[Any]:
    return cell.asked("PATCH", f"/v1/jobs/{JOB_ID}")


def test_the_form_is_filled_and_only_changes_are_sent(cell: Cell, owner: Signed, url: str) -> None:
    page = owner.browser.get(url).content.decode()
    assert 'value="0 9 * * *"' in page
    assert "&quot;user&quot;: 1" in page
    answer = owner.browser.post(url, form(cron="30 9 * * *", payload='{"user": 2}'))
    assert answer["Location"] == f"{owner.base}/jobs/{JOB_ID}/"
    (call,) = patched(cell)
    assert call.body == {"schedule": {"cron": "30 9 * * *"}, "payload": {"user": 2}}
    assert call.headers["If-Match"] == '"1"'


def test_saving_without_a_change_changes_nothing(cell: Cell, owner: Signed, url: str) -> None:
    answer = owner.browser.post(url, form(), follow=True)
    assert b"Nothing was changed." in answer.content
    assert patched(cell) == []


def test_a_run_that_began_meanwhile_is_explained(cell: Cell, owner: Signed, url: str) -> None:
    problem = {"status": 409, "code": "RUN_UNDER_WAY", "detail": "x"}
    cell.answers[f"PATCH /v1/jobs/{JOB_ID}"] = (409, problem)
    answer = owner.browser.post(url, form(cron="30 9 * * *"))
    text = answer.content.decode()
    assert answer.status_code == 409
    assert "A run of this job began while you saved" in text
    assert 'value="30 9 * * *"' in text


@pytest.mark.parametrize("seen", ["0", "1"])
def test_an_edit_that_was_overtaken_shows_what_differs(
    cell: Cell, owner: Signed, url: str, seen: str
) -> None:
    """Whether it is noticed before sending (`0`: an older version was seen) or by the cell."""
    problem = {"status": 412, "code": "PRECONDITION_FAILED", "detail": "x"}
    cell.answers[f"PATCH /v1/jobs/{JOB_ID}"] = (412, problem)
    answer = owner.browser.post(url, form(cron="30 9 * * *", version=seen))
    text = answer.content.decode()
    assert answer.status_code == 409
    assert "Somebody saved version 1 while you were editing." in text
    assert "Saving now would change" in text
    assert '<code class="wrap">0 9 * * *</code>' in text
    assert '<code class="wrap">30 9 * * *</code>' in text
    assert len(patched(cell)) == int(seen)


def test_all_faults_are_at_their_fields(cell: Cell, owner: Signed, url: str) -> None:
    faults = [
        {"pointer": "/schedule/cron", "detail": "minute: 61 is above 59"},
        {"pointer": "/target/path", "detail": "must begin with /"},
    ]
    cell.answers[f"PATCH /v1/jobs/{JOB_ID}"] = (422, {"detail": "2 faults", "errors": faults})
    answer = owner.browser.post(url, form(cron="61 * * * *", path="x"))
    text = answer.content.decode()
    assert answer.status_code == 422
    assert '<div id="fault-cron"><p class="fault">minute: 61 is above 59</p></div>' in text
    assert '<div id="fault-path"><p class="fault">must begin with /</p></div>' in text
    assert "Nothing was changed." in text


def test_a_job_that_is_over_is_not_edited(cell: Cell, owner: Signed, url: str) -> None:
    cell.answers[f"GET /v1/jobs/{JOB_ID}"] = (200, {**SHOWN, "status": "CANCELLED"})
    answer = owner.browser.get(url, follow=True)
    assert b"cannot be edited any more" in answer.content


def test_a_cell_that_is_away_loses_nothing_typed(cell: Cell, owner: Signed, url: str) -> None:
    cell.answers[f"PATCH /v1/jobs/{JOB_ID}"] = (503, {})
    answer = owner.browser.post(url, form(cron="30 9 * * *"))
    assert answer.status_code == 503
    assert b'value="30 9 * * *"' in answer.content


def test_a_hidden_payload_is_kept(cell: Cell, owner: Signed) -> None:
    cell.answers[f"PATCH /v1/jobs/{JOB_ID}"] = (200, {**JOB, "version": 2})
    url = f"{owner.base}/jobs/{JOB_ID}/edit"
    assert b"hidden from your role" in owner.browser.get(url).content
    owner.browser.post(url, {**fields_of(JOB), "version": "1", "name": "Other"})
    assert patched(cell)[0].body == {"name": "Other"}


def test_a_copy_has_no_key_and_is_a_new_job(cell: Cell, owner: Signed) -> None:
    cell.answers[f"GET /v1/jobs/{JOB_ID}"] = (200, {**SHOWN, "key": "digest"})
    page = owner.browser.get(f"{owner.base}/jobs/new?from={JOB_ID}").content.decode()
    assert 'value="Digest &lt;b&gt; (copy)"' in page
    assert 'value="0 9 * * *"' in page
    assert 'value="digest"' not in page
    assert "Create job" in page
