"""Runs, dead letters, targets and figures: what their pages show and do."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from tests.component.controlplane.console.cell import EVENT, FIGURES, JOB, JOB_ID, RUN, RUN_ID, TARGET, Cell
from tests.component.controlplane.console.conftest import Signed, sign_in
from tests.component.controlplane.console.past import LETTER

pytestmark = pytest.mark.django_db

GROUP = {
    "fingerprint": "abc", "target_id": "tgt_echo", "http_status": 500, "error": None, "count": 1234,
    "first_failed_at": "2026-11-30T06:00:00Z", "last_failed_at": "2026-11-30T06:33:27Z",
}  # fmt: skip


# --- runs --------------------------------------------------------------------------------
def test_local_times_of_the_filter_become_instants_everybody_reads_alike(cell: Cell, owner: Signed) -> None:
    owner.browser.cookies["zone"] = "Asia/Tokyo"
    answer = owner.browser.get(f"{owner.base}/runs/?state=FAILED&scheduled_from=2026-11-30T15:00&target=")
    assert answer["Location"] == f"{owner.base}/runs/?state=FAILED&scheduled_from=2026-11-30T06%3A00%3A00Z"
    page = owner.browser.get(answer["Location"]).content.decode()
    assert 'value="2026-11-30T15:00:00"' in page


def test_a_search_that_is_not_over_says_how_far_it_looked(cell: Cell, owner: Signed) -> None:
    looked = {"items": [], "next_cursor": "more", "looked_back_to": "2026-11-29T06:00:00Z"}
    cell.answers["GET /v1/runs"] = (200, looked)
    page = owner.browser.get(f"{owner.base}/runs/?state=FAILED").content.decode()
    assert "No run fits these filters among those scheduled since" in page
    assert "/runs/?state=FAILED&amp;cursor=more" in page
    cell.answers["GET /v1/runs"] = (200, {**looked, "next_cursor": None})
    ended = owner.browser.get(f"{owner.base}/runs/?finished_from=2026-11-30T06:00:00Z").content.decode()
    assert "among those scheduled since" in ended
    assert "Look further back" not in ended
    assert "finished_from=2026-11-30T06%3A00%3A00Z" in cell.asked("GET", "/v1/runs")[-1].target


def test_a_failed_run_shows_each_attempt_and_its_headers(cell: Cell, owner: Signed) -> None:
    page = owner.browser.get(f"{owner.base}/runs/{RUN_ID}/").content.decode()
    assert "Failed for good:" in page
    assert "/dlq/?fingerprint=" in page
    assert "X-Fencing-Token" in page
    assert "v1,…" in page
    assert "whsec" not in page


def test_bodies_are_shown_as_the_cell_gives_them(cell: Cell, owner: Signed) -> None:
    attempt: dict[str, Any] = {**RUN["attempts"][0], "body_hidden": True}  # type: ignore[index]
    del attempt["body"]
    cell.answers[f"GET /v1/runs/{RUN_ID}"] = (200, {**RUN, "attempts": [attempt]})
    assert "body is hidden" in owner.browser.get(f"{owner.base}/runs/{RUN_ID}/").content.decode()


def test_running_again_says_what_it_means_and_starts_one_run(cell: Cell, owner: Signed) -> None:
    url = f"{owner.base}/runs/{RUN_ID}/again"
    cell.answers[f"GET /v1/jobs/{JOB_ID}"] = (200, {**JOB, "version": 3})
    part = owner.browser.get(url, headers={"HX-Request": "true"}).content.decode()
    assert "1 new run starts now" in part
    assert "version 3 of the job; the run that failed used version 1" in part
    assert cell.asked("POST", f"/v1/jobs/{JOB_ID}:trigger") == []
    again = RUN_ID + "~2"
    cell.answers[f"POST /v1/jobs/{JOB_ID}:trigger"] = (201, {**RUN, "run_id": again})
    for _ in range(2):
        answer = owner.browser.post(url, {"token": "once"})
        assert answer["Location"] == f"{owner.base}/runs/{again}/"
    calls = cell.asked("POST", f"/v1/jobs/{JOB_ID}:trigger")
    assert {call.headers["Idempotency-Key"] for call in calls} == {"once"}
    viewer = sign_in("viewer")
    assert viewer.browser.post(f"{viewer.base}/runs/{RUN_ID}/again").status_code == 403
    assert b"Run again" not in viewer.browser.get(f"{viewer.base}/runs/{RUN_ID}/").content


def test_who_is_told_of_an_end_is_shown_with_it(cell: Cell, owner: Signed) -> None:
    call = f"{RUN_ID}~-1025"
    told = {"run_id": call, "target_id": "tgt_pager", "state": "FAILED", "attempt": 20,
            "http_status": 503, "finished_at": "2026-11-30T09:33:27Z"}  # fmt: skip
    cell.answers[f"GET /v1/runs/{RUN_ID}"] = (200, {**RUN, "callbacks": [told], "callback_of": None})
    page = owner.browser.get(f"{owner.base}/runs/{RUN_ID}/").content.decode()
    assert "Who was told how it ended" in page
    assert "/targets/tgt_pager/" in page
    assert f"/runs/{call}/" in page
    own = {**RUN, "run_id": call, "target_id": "tgt_pager", "callback_of": RUN_ID, "callbacks": []}
    cell.answers[f"GET /v1/runs/{call}"] = (200, own)
    page = owner.browser.get(f"{owner.base}/runs/{call}/").content.decode()
    assert "This call tells how" in page
    assert f"/runs/{RUN_ID}/" in page
    assert "Run again" not in page
    job = {**JOB, "on_failure": {"target_id": "tgt_pager", "path": "/x"}, "concurrency_key": "warehouse",
           "max_concurrent": 2, "delivery": "AT_MOST_ONCE"}  # fmt: skip
    cell.answers[f"GET /v1/jobs/{JOB_ID}"] = (200, job)
    page = owner.browser.get(f"{owner.base}/jobs/{JOB_ID}/").content.decode()
    assert "Told of failure" in page
    assert "at most 2 under way with the key <code>warehouse</code>" in page


# --- dead letters ------------------------------------------------------------------------
def test_dead_letters_are_grouped_and_named(cell: Cell, owner: Signed) -> None:
    cell.answers["GET /v1/dlq"] = (
        200,
        {"groups": [GROUP], "truncated": True, "items": [LETTER], "next_cursor": "n"},
    )
    page = owner.browser.get(f"{owner.base}/dlq/?fingerprint=abc").content.decode()
    assert page.count("234+<") == 2
    assert "they count the latest 10,000" in page
    assert "1\u202f234" in page
    assert "Digest &lt;b&gt;" in page
    assert "fingerprint=abc&amp;cursor=n" in page
    cell.answers["GET /v1/dlq"] = (422, {"errors": [{"parameter": "cursor", "detail": "is no cursor"}]})
    odd = owner.browser.get(f"{owner.base}/dlq/?cursor=x")
    assert (odd.status_code, b"cursor is no cursor" in odd.content) == (422, True)


# --- targets -----------------------------------------------------------------------------
def test_a_target_shows_how_it_does_and_who_calls_it(cell: Cell, owner: Signed) -> None:
    page = owner.browser.get(f"{owner.base}/targets/tgt_echo/").content.decode()
    assert "of the latest 1 run" in page
    assert "Digest &lt;b&gt;" in page
    assert "1+" in page  # scheduled jobs: there is another page of them
    assert owner.browser.get(f"{owner.base}/targets/tgt_other/").status_code == 404


def test_disabling_says_whom_it_touches(cell: Cell, owner: Signed) -> None:
    url = f"{owner.base}/targets/tgt_echo/disable"
    cell.answers["PATCH /v1/targets/tgt_echo"] = (200, {**TARGET, "state": "DISABLED"})
    assert b"scheduled job" in owner.browser.get(url).content
    assert cell.asked("PATCH", "/v1/targets/tgt_echo") == []
    owner.browser.post(url)
    (call,) = cell.asked("PATCH", "/v1/targets/tgt_echo")
    assert call.body == {"disabled": True}


def test_a_test_call_shows_what_was_answered(cell: Cell, owner: Signed) -> None:
    url = f"{owner.base}/targets/tgt_echo/test"
    assert b"1 call goes out now" in owner.browser.get(url).content
    tested = {
        "test_id": "test_1", "ok": False, "url": "https://echo.example.com/x", "method": "POST",
        "status": 401, "error": None, "latency_ms": 12, "body": "<no>",
    }  # fmt: skip
    cell.answers["POST /v1/targets/tgt_echo:test"] = (200, tested)
    page = owner.browser.post(url, {"method": "POST", "path": "/x", "payload": '{"a": 1}'}).content.decode()
    (call,) = cell.asked("POST", "/v1/targets/tgt_echo:test")
    assert call.body == {"method": "POST", "path": "/x", "payload": {"a": 1}, "timeout_seconds": 4}
    assert "refused the call" in page
    assert "did not accept the signature" in page
    assert "&lt;no&gt;" in page
    answer = owner.browser.post(url, {"method": "POST", "payload": "{oops"}, follow=True)
    assert b"the payload is not JSON" in answer.content
    assert len(cell.asked("POST", "/v1/targets/tgt_echo:test")) == 1


def test_a_target_is_edited_over_the_version_that_was_seen(cell: Cell, owner: Signed) -> None:
    url = f"{owner.base}/targets/tgt_echo/edit"
    page = owner.browser.get(url).content.decode()
    assert 'name="version" value="1"' in page
    assert "auth_type" not in page
    cell.answers["PATCH /v1/targets/tgt_echo"] = (200, {**TARGET, "version": 2})
    form = {"base_url": TARGET["base_url"], "max_concurrency": "5", "latency_slo_ms": "2000", "version": "1"}
    assert owner.browser.post(url, form).status_code == 302
    (call,) = cell.asked("PATCH", "/v1/targets/tgt_echo")
    assert (call.body, call.headers["If-Match"]) == ({"max_concurrency": 5}, '"1"')
    cell.answers["PATCH /v1/targets/tgt_echo"] = (412, {"detail": "x"})
    again = owner.browser.post(url, form)
    assert (again.status_code, b"Somebody saved another version" in again.content) == (409, True)
    assert b'value="5"' in again.content
    fault = {"pointer": "/max_concurrency", "detail": "is above 10000"}
    cell.answers["PATCH /v1/targets/tgt_echo"] = (422, {"detail": "1 fault", "errors": [fault]})
    assert b"is above 10000" in owner.browser.post(url, form).content


def test_a_drill_is_begun_and_ended_in_the_form(cell: Cell, owner: Signed) -> None:
    url = f"{owner.base}/targets/tgt_echo/edit"
    form = {"base_url": TARGET["base_url"], "max_concurrency": "10", "latency_slo_ms": "2000", "version": "1"}
    cell.answers["PATCH /v1/targets/tgt_echo"] = (200, {**TARGET, "version": 2})
    owner.browser.post(url, {**form, "duplicate_percent": "5"})
    drilled = {**TARGET, "drill": {"duplicate_percent": 5}}
    cell.answers["GET /v1/targets/tgt_echo"] = (200, drilled)
    assert b"5 % of calls are delivered twice" in owner.browser.get(f"{owner.base}/targets/tgt_echo/").content
    assert b'name="duplicate_percent" inputmode="numeric" value="5"' in owner.browser.get(url).content
    owner.browser.post(url, {**form, "duplicate_percent": "0"})
    calls = [call.body for call in cell.asked("PATCH", "/v1/targets/tgt_echo")]
    assert calls == [{"drill": {"duplicate_percent": 5}}, {"drill": None}]
    fault = {"pointer": "/drill/duplicate_percent", "detail": "is above 100"}
    cell.answers["PATCH /v1/targets/tgt_echo"] = (422, {"detail": "1 fault", "errors": [fault]})
    assert b"is above 100" in owner.browser.post(url, {**form, "duplicate_percent": "101"}).content


def test_dead_letters_are_filtered_by_address(cell: Cell, owner: Signed) -> None:
    url = f"{owner.base}/dlq/?job_id={JOB_ID}&reason=POISON&failed_from=2026-11-30T06:00:00Z"
    page = owner.browser.get(url).content.decode()
    (call,) = cell.asked("GET", "/v1/dlq")
    asked = dict(parse_qsl(urlsplit(call.target).query))
    assert {name: asked[name] for name in ("job_id", "reason", "failed_from")} == {
        "job_id": JOB_ID, "reason": "POISON", "failed_from": "2026-11-30T06:00:00Z",
    }  # fmt: skip
    assert '<option value="POISON" selected>' in page
    local = owner.browser.get(f"{owner.base}/dlq/?failed_until=2026-11-30T07:00:00")
    assert local["Location"].endswith("?failed_until=2026-11-30T07%3A00%3A00Z")


def test_lists_say_what_a_target_is(cell: Cell, owner: Signed) -> None:
    for path in ("/jobs/", "/runs/"):
        assert b"https://echo.example.com" in owner.browser.get(owner.base + path).content, path
    cell.answers["GET /v1/targets/tgt_echo"] = (200, {**TARGET, "description": "Echoes <b>"})
    assert b"Echoes &lt;b&gt;" in owner.browser.get(owner.base + "/jobs/").content
    cell.answers["GET /v1/targets/tgt_echo"] = (404, {"detail": "gone"})
    assert owner.browser.get(owner.base + "/jobs/").status_code == 200


def test_a_job_for_a_task_queue_leads_to_the_queue_and_to_no_target(cell: Cell, owner: Signed) -> None:
    queue = {"type": "TASK_QUEUE", "task_queue": "mails", "lease_seconds": 30}
    cell.answers["GET /v1/jobs"] = (200, {"items": [{**JOB, "target": queue}], "next_cursor": None})
    page = owner.browser.get(owner.base + "/jobs/").content.decode()
    assert f'href="{owner.base}/queues/mails/"><code>queue:mails</code></a></td>' in page
    assert f"{owner.base}/targets/queue" not in page


def test_lists_do_not_ask_for_a_task_queue_as_a_target(cell: Cell, owner: Signed) -> None:
    pulled = {**RUN, "target_id": "queue:test"}
    cell.answers["GET /v1/runs"] = (200, {"items": [RUN, pulled], "next_cursor": None})
    cell.answers["GET /v1/targets/queue:test"] = (405, {"detail": "POST only"})
    page = owner.browser.get(owner.base + "/runs/")
    assert page.status_code == 200
    assert f"{owner.base}/queues/test/".encode() in page.content
    assert b"https://echo.example.com" in page.content


def test_a_time_that_is_none_is_left_to_the_cell_to_refuse(cell: Cell, owner: Signed) -> None:
    cell.answers["GET /v1/runs"] = (422, {"detail": "no time"})
    page = owner.browser.get(owner.base + "/runs/?scheduled_from=2026-13-01T00:00")
    assert (page.status_code, b"no time" in page.content) == (422, True)


def test_a_step_of_a_workflow_has_a_page_and_no_job(cell: Cell, owner: Signed) -> None:
    execution = "wr_01m8njb93zg06vpdgn4y6fe2g1"
    step = {**RUN, "run_id": f"{execution}:1", "job_id": execution, "kind": "ACTIVITY", "state": "FAILED"}
    cell.answers[f"GET /v1/runs/{execution}:1"] = (200, step)
    cell.answers["GET /v1/runs"] = (200, {"items": [RUN, step], "next_cursor": None})
    letter = {**LETTER, "run_id": step["run_id"], "job_id": execution}
    cell.answers["GET /v1/dlq"] = (
        200, {"groups": [], "truncated": False, "items": [letter], "next_cursor": None},
    )  # fmt: skip
    for path in (f"/runs/{execution}:1/", f"/runs/{execution}:1/live", "/runs/", "/dlq/"):
        page = owner.browser.get(owner.base + path)
        assert page.status_code == 200, path
        assert f"/jobs/{execution}".encode() not in page.content, path
        assert b"/again" not in page.content or path == "/runs/", path
    assert cell.asked("GET", f"/v1/jobs/{execution}") == []
    assert b"Workflow step" in owner.browser.get(f"{owner.base}/runs/{execution}:1/").content


def test_the_last_answer_is_open(cell: Cell, owner: Signed) -> None:
    page = owner.browser.get(f"{owner.base}/runs/{RUN_ID}/").content.decode()
    assert "<details open><summary>Answer body" in page


def test_a_job_inside_its_window_is_due_now(cell: Cell, owner: Signed) -> None:
    now = datetime.now(UTC).replace(microsecond=0)

    def shown(due: datetime) -> str:
        times = {"next_run_at": _text(now - timedelta(seconds=40)), "due_at": _text(due)}
        cell.answers["GET /v1/jobs"] = (200, {"items": [{**JOB, **times}], "next_cursor": None})
        return owner.browser.get(owner.base + "/jobs/").content.decode()

    assert "due now, inside its window until" in shown(now + timedelta(seconds=100))
    assert "due now <span" in shown(now - timedelta(seconds=5))


def _text(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"


@pytest.mark.parametrize(
    ("path", "there"),
    [
        ("/settings/members", "/settings/members/"),
        ("/settings/limits/?x=1", "/settings/limits?x=1"),
        ("/jobs?state=PAUSED", "/jobs/?state=PAUSED"),
        ("", "/"),
    ],
)
def test_addresses_work_with_and_without_their_last_slash(
    cell: Cell, owner: Signed, path: str, there: str
) -> None:
    answer = owner.browser.get(owner.base + path)
    assert (answer.status_code, answer["Location"]) == (302, owner.base + there)
    assert owner.browser.get(owner.base + "/nothing").status_code == 404
    assert owner.browser.post(owner.base + "/settings/members", {}).status_code == 405
    stranger = sign_in("owner")
    assert stranger.browser.get(owner.base + "/settings/members").status_code == 404


def test_what_was_seen_is_what_is_approved(cell: Cell, owner: Signed) -> None:
    url = f"{owner.base}/targets/tgt_echo/approve"
    cell.answers["GET /v1/targets/tgt_echo"] = (200, {**TARGET, "state": "PENDING", "version": 4})
    assert 'name="version" value="4"' in owner.browser.get(url).content.decode()
    cell.answers["POST /v1/targets/tgt_echo:approve"] = (200, {**TARGET, "version": 5})
    assert b"is approved" in owner.browser.post(url, {"version": "4"}, follow=True).content
    cell.answers["POST /v1/targets/tgt_echo:approve"] = (412, {"detail": "The current version is 5."})
    answer = owner.browser.post(url, {"version": "4"}, follow=True)
    assert b"somebody changed this target since you looked" in answer.content
    owner.browser.post(url)  # nothing seen: no version is that one
    sent = [call.headers["If-Match"] for call in cell.asked("POST", "/v1/targets/tgt_echo:approve")]
    assert sent == ['"4"', '"4"', '"0"']


@pytest.mark.parametrize("verb", ["approve", "rotate"])
def test_only_who_may_approves(cell: Cell, verb: str) -> None:
    developer = sign_in("developer")
    url = f"{developer.base}/targets/tgt_echo/{verb}"
    assert (developer.browser.get(url).status_code, developer.browser.post(url).status_code) == (403, 403)
    assert b"New secret" not in developer.browser.get(f"{developer.base}/targets/tgt_echo/").content
    assert developer.browser.get(f"{developer.base}/targets/tgt_echo/explode").status_code == 404


# --- figures -----------------------------------------------------------------------------
def test_charts_have_a_table_of_the_same_figures(cell: Cell, owner: Signed) -> None:
    minutes = [{**FIGURES, "minute": "2026-11-30T06:33:00Z"}]
    cell.answers["GET /v1/stats"] = (200, {"minutes": minutes, "total": FIGURES})
    page = owner.browser.get(f"{owner.base}/activity?scale=7d").content.decode()
    assert "The same as a table" in page
    assert 'href="?scale=7d" aria-current="true"' in page
    assert cell.asked("GET", "/v1/stats")[0].target.count("since=") == 1
    # A minute counts what ended in it; the list must hold just these.
    assert "/runs/?finished_from=2026-11-30T05:59:55Z&amp;finished_until=2026-11-30T08:00:00Z" in page


@pytest.mark.parametrize(
    ("query", "runs", "said"),
    [
        (f"job_id={JOB_ID}", f"&amp;job_id={JOB_ID}", "of Digest &lt;b&gt;"),
        ("target_id=tgt_echo", "&amp;target=tgt_echo", "of tgt_echo"),
    ],
)
def test_activity_of_one_job_or_target(cell: Cell, owner: Signed, query: str, runs: str, said: str) -> None:
    page = owner.browser.get(f"{owner.base}/activity?scale=6h&{query}").content.decode()
    assert query in cell.asked("GET", "/v1/stats")[-1].target
    assert said in page
    assert f"/activity/live?scale=6h&amp;{query}" in page
    assert f"?scale=24h&amp;{query}" in page
    links = [link for link in page.split('"') if "/runs/?" in link]
    assert links
    assert all(link.endswith(runs) for link in links)


def test_the_last_run_of_each_job_comes_with_the_list(cell: Cell, owner: Signed) -> None:
    jobs = [{**JOB, "last_run": RUN}, {**JOB, "job_id": "job_never", "last_run": None}]
    cell.answers["GET /v1/jobs"] = (200, {"items": jobs, "next_cursor": None})
    page = owner.browser.get(f"{owner.base}/jobs/").content.decode()
    assert page.count(f"/runs/{RUN_ID}/") == 1
    assert "include=last_run" in cell.asked("GET", "/v1/jobs")[-1].target
    assert cell.asked("GET", "/v1/runs") == []


def test_figures_of_failures_lead_to_all_that_they_count(cell: Cell, owner: Signed) -> None:
    for path in ("/activity", "/"):
        assert "state=FAILED,UNKNOWN" in owner.browser.get(owner.base + path).content.decode(), path
    page = owner.browser.get(f"{owner.base}/runs/?state=FAILED,UNKNOWN").content.decode()
    assert '<option value="FAILED,UNKNOWN" selected>failed, unknown</option>' in page
    assert "state=FAILED%2CUNKNOWN" in cell.asked("GET", "/v1/runs")[-1].target


def test_what_is_more_than_a_page_is_said(cell: Cell, owner: Signed) -> None:
    page = owner.browser.get(f"{owner.base}/live").content.decode()
    assert "There is more than fits" in page  # the cell says that there are more jobs
    assert "1+ jobs paused" in page or "1+ job paused" in page


def test_events_name_people_and_lead_to_what_they_are_about(cell: Cell, owner: Signed) -> None:
    mine = {**EVENT, "type": "job.cancelled", "actor": owner.membership.user.actor_name}
    odd = {**EVENT, "type": "moon.landed", "subject": "<moon>", "actor": None, "data": {}}
    cell.answers["GET /v1/events"] = (200, {"items": [odd, EVENT, mine], "next_cursor": "e", "more": False})
    page = owner.browser.get(f"{owner.base}/events").content.decode()
    assert f"by {owner.membership.user.email}" in page
    assert "by API key abc" in page
    assert "&lt;moon&gt;" in page
    assert page.index("was cancelled") < page.index("was paused") < page.index("moon landed")
    assert f'href="{owner.base}/jobs/{JOB_ID}/"' in page
    cell.answers["GET /v1/events"] = (422, {"errors": [{"parameter": "type", "detail": "is no type"}]})
    assert owner.browser.get(f"{owner.base}/events?type=x").status_code == 422
