"""What pages show and do, and how they take a cell's bad days."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.console.job_form import DEFAULTS
from tests.component.controlplane.console.cell import JOB, JOB_ID, RUN_ID, TARGET, Cell
from tests.component.controlplane.console.conftest import Signed, sign_in
from tests.component.controlplane.console.test_access import READ
from tests.component.controlplane.factories import CellFactory

pytestmark = pytest.mark.django_db

FORM = {**DEFAULTS, "time_zone": "UTC", "target_id": "tgt_echo", "token": "once"}
PROBLEM = {
    "status": 422,
    "code": "INVALID",
    "detail": "2 faults; see errors.",
    "errors": [
        {"pointer": "/schedule/cron", "detail": "minute: 61 is above 59"},
        {"pointer": "/target/path", "detail": "must begin with /"},
    ],
}


def test_a_job_is_created_once_however_often_it_is_sent(cell: Cell, owner: Signed) -> None:
    cell.answers["POST /v1/jobs"] = (201, {**JOB, "notes": ["It is late."]})
    for _ in range(2):
        answer = owner.browser.post(
            f"{owner.base}/jobs/new", {**FORM, "name": "Digest", "payload": '{"a": 1}'}
        )
        assert (answer.status_code, answer["Location"]) == (302, f"{owner.base}/jobs/{JOB_ID}/")
    calls = cell.asked("POST", "/v1/jobs")
    assert [call.headers["Idempotency-Key"] for call in calls] == ["once", "once"]
    assert calls[0].body["name"] == "Digest"
    assert calls[0].body["payload"] == {"a": 1}
    assert b"It is late." in owner.browser.get(f"{owner.base}/jobs/{JOB_ID}/").content


def test_all_faults_are_at_their_fields_and_nothing_typed_is_lost(cell: Cell, owner: Signed) -> None:
    cell.answers["POST /v1/jobs"] = (422, PROBLEM)
    answer = owner.browser.post(f"{owner.base}/jobs/new", {**FORM, "name": "Kept", "cron": "61 * * * *"})
    text = answer.content.decode()
    assert answer.status_code == 422
    assert '<div id="fault-cron"><p class="fault">minute: 61 is above 59</p></div>' in text
    assert '<div id="fault-path"><p class="fault">must begin with /</p></div>' in text
    assert 'value="Kept"' in text
    assert 'value="61 * * * *"' in text


def test_a_payload_that_is_no_json_is_not_sent(cell: Cell, owner: Signed) -> None:
    answer = owner.browser.post(f"{owner.base}/jobs/new", {**FORM, "payload": "{oops"})
    assert answer.status_code == 422
    assert b"is not JSON" in answer.content
    assert cell.asked("POST", "/v1/jobs") == []


def test_the_preview_answers_with_runs_or_with_faults(cell: Cell, owner: Signed) -> None:
    fine = owner.browser.post(f"{owner.base}/jobs/preview", FORM).content.decode()
    assert "Tue 1 Dec 2026, 09:00:00" in fine
    assert '<div id="fault-cron" hx-swap-oob="true"></div>' in fine
    cell.answers["POST /v1/schedules:preview"] = (422, PROBLEM)
    wrong = owner.browser.post(f"{owner.base}/jobs/preview", FORM)
    assert wrong.status_code == 200
    assert "minute: 61 is above 59" in wrong.content.decode()


@pytest.mark.parametrize("verb", ["pause", "trigger"])
def test_an_action_says_what_it_touches_and_then_does_it(cell: Cell, owner: Signed, verb: str) -> None:
    url = f"{owner.base}/jobs/{JOB_ID}/{verb}"
    assert b"<li>1 " in owner.browser.get(url).content
    part = owner.browser.get(url, headers={"HX-Request": "true"}).content
    assert b"<html" not in part
    cell.answers[f"POST /v1/jobs/{JOB_ID}:{verb}"] = (201, {"run_id": RUN_ID})
    assert owner.browser.post(url, {"token": "t"}).status_code == 302
    (call,) = cell.asked("POST", f"/v1/jobs/{JOB_ID}:{verb}")
    assert call.headers["Idempotency-Key"] == "t"


def test_cancelling_counts_first_and_a_conflict_is_said(cell: Cell, owner: Signed) -> None:
    page = owner.browser.get(f"{owner.base}/jobs/{JOB_ID}/cancel").content.decode()
    assert "1 planned occurrence and 2 waiting runs will be cancelled." in page
    cell.answers[f"DELETE /v1/jobs/{JOB_ID}"] = (409, {"detail": "The run is under way."})
    answer = owner.browser.post(f"{owner.base}/jobs/{JOB_ID}/cancel", {}, follow=True)
    assert b"The run is under way." in answer.content


def test_pages_follow_one_another_by_cursor_and_keep_their_filters(cell: Cell, owner: Signed) -> None:
    text = owner.browser.get(f"{owner.base}/jobs/?state=PAUSED&odd=1").content.decode()
    assert f'href="{owner.base}/jobs/?state=PAUSED&amp;cursor=c%2B%2F1"' in text
    assert cell.asked("GET", "/v1/jobs")[0].target == "/v1/jobs?limit=50&include=last_run&state=PAUSED"


@pytest.mark.parametrize(
    ("page", "filters"),
    [
        ("jobs", "state=PAUSED&target=tgt_echo&tag=a%2Bb&name_prefix=x"),
        ("runs", f"state=FAILED&job_id={JOB_ID}&target=tgt_echo"),
        ("dlq", "target=tgt_echo&fingerprint=abc"),
        ("targets", "state=PENDING"),
    ],
)
def test_every_filter_reaches_the_cell(cell: Cell, owner: Signed, page: str, filters: str) -> None:
    assert owner.browser.get(f"{owner.base}/{page}/?{filters}").status_code == 200
    assert cell.asked("GET", f"/v1/{page}")[0].target.endswith("&" + filters)


def test_a_secret_is_shown_once_and_a_credential_never_again(cell: Cell, owner: Signed) -> None:
    cell.answers["POST /v1/targets"] = (201, {**TARGET, "state": "PENDING", "secret": "whsec_abc"})
    form = {
        "base_url": "https://a.example.com",
        "request_token": "t",
        "auth_type": "BEARER",
        "token": "s3cret",
    }
    answer = owner.browser.post(f"{owner.base}/targets/new", form)
    assert b"whsec_abc" in answer.content
    assert answer["Cache-Control"] == "no-store"
    (call,) = cell.asked("POST", "/v1/targets")
    assert call.body["auth"] == {"type": "BEARER", "token": "s3cret"}
    cell.answers["POST /v1/targets"] = (
        422,
        {
            "errors": [
                {"pointer": "/base_url", "detail": "is private"},
                {"pointer": "/auth/token", "detail": "odd"},
            ]
        },
    )
    again = owner.browser.post(f"{owner.base}/targets/new", form)
    assert again.status_code == 422
    assert b"is private" in again.content
    assert b"s3cret" not in again.content


def test_a_new_secret_is_asked_for_in_numbers_and_shown_once(cell: Cell, owner: Signed) -> None:
    cell.answers["GET /v1/targets/tgt_echo"] = (200, TARGET)
    url = f"{owner.base}/targets/tgt_echo/rotate"
    assert b"Calls of 1+ scheduled job" in owner.browser.get(url).content
    assert cell.asked("POST", "/v1/targets/tgt_echo:rotate-secret") == []
    cell.answers["POST /v1/targets/tgt_echo:rotate-secret"] = (200, {**TARGET, "secret": "whsec_new"})
    assert b'name="token"' in owner.browser.get(url).content
    assert b"whsec_new" in owner.browser.post(url, {"token": "once"}).content
    for again in ({"token": "once"}, {}):
        assert b"whsec_new" not in owner.browser.post(url, again, follow=True).content
    assert len(cell.asked("POST", "/v1/targets/tgt_echo:rotate-secret")) == 1


def test_payloads_are_shown_as_the_cell_gives_them(cell: Cell, owner: Signed) -> None:
    hidden = owner.browser.get(f"{owner.base}/jobs/{JOB_ID}/").content.decode()
    assert "your role may not see payloads" in hidden
    shown: dict[str, Any] = {**JOB, "payload": {"user": 1001}}
    del shown["payload_hidden"]
    cell.answers[f"GET /v1/jobs/{JOB_ID}"] = (200, shown)
    assert "&quot;user&quot;: 1001" in owner.browser.get(f"{owner.base}/jobs/{JOB_ID}/").content.decode()


BAD_DAYS: list[Any] = [
    (503, {"detail": "away"}),
    (500, {"detail": "x"}),
    (421, {"code": "NOT_OWNER"}),
    b"<html>not json",
    (302, []),
]


@pytest.mark.parametrize("day", BAD_DAYS, ids=lambda day: str(day)[:6])
def test_a_cell_with_a_bad_day_is_a_sentence(cell: Cell, owner: Signed, day: Any) -> None:
    lists = ("jobs", "runs", "targets", "dlq", "redrives", "stats", "herd", "events", "operations")
    single = (f"jobs/{JOB_ID}", f"runs/{RUN_ID}", "targets/tgt_echo", "operations/op_1")
    for path in (*lists, *single):
        cell.answers[f"GET /v1/{path}"] = day
    for path in READ:
        answer = owner.browser.get(owner.base + path)
        assert answer.status_code in (200, 503), path
        assert path == "/usage" or b"cell" in answer.content.lower()


def test_a_tenant_whose_cell_does_not_answer(control: None) -> None:
    CellFactory(url="http://127.0.0.1:1")
    owner = sign_in()
    overview = owner.browser.get(owner.base + "/")
    assert overview.status_code == 200
    assert b"Your cell cannot be reached" in overview.content
    jobs = owner.browser.get(owner.base + "/jobs/")
    assert jobs.status_code == 503
    assert b"Try again" in jobs.content
    part = owner.browser.get(owner.base + "/live", headers={"HX-Request": "true"})
    assert part.status_code == 200
    assert b"<html" not in part.content
    answer = owner.browser.post(owner.base + "/jobs/new", {**FORM, "name": "Kept"})
    assert answer.status_code == 422
    assert b'value="Kept"' in answer.content
    assert b"Nothing was created" in answer.content


def test_what_the_cell_does_not_know_is_not_found(cell: Cell, owner: Signed) -> None:
    for path in ("/jobs/job_x/", "/runs/nonsense/", "/jobs/%2e%2e/", f"/jobs/{JOB_ID}/explode"):
        assert owner.browser.get(owner.base + path).status_code == 404, path
    cell.answers["GET /v1/jobs"] = (422, {"errors": [{"parameter": "cursor", "detail": "is no cursor"}]})
    odd = owner.browser.get(owner.base + "/jobs/?cursor=x")
    assert (odd.status_code, b"is no cursor" in odd.content) == (422, True)


def test_an_empty_workspace_teaches_the_first_step(cell: Cell, owner: Signed) -> None:
    empty = {"items": [], "next_cursor": None}
    for name in ("jobs", "runs", "targets"):
        cell.answers[f"GET /v1/{name}"] = (200, empty)
    text = owner.browser.get(owner.base + "/").content.decode()
    assert "Your first job, in two steps" in text
    assert "curl -X POST http://127.0.0.1:1/v1/jobs" in text
