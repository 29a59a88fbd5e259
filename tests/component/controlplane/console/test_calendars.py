"""Calendars and backfills on the console: what is sent, what is said before and after."""

from __future__ import annotations

import re

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from controlplane.console.job_changes import fields_of
from tests.component.controlplane.console.cell import JOB, JOB_ID, Cell
from tests.component.controlplane.console.conftest import Signed, sign_in
from tests.component.controlplane.console.past import BACKFILL, BACKFILL_PLAN

pytestmark = pytest.mark.django_db

CALENDAR = "/v1/calendars/cal_de"
BACKFILL_PATH = f"/v1/jobs/{JOB_ID}:backfill"


def test_calendars_are_listed_and_shown(cell: Cell, owner: Signed) -> None:
    page = owner.browser.get(f"{owner.base}/calendars/").content.decode()
    assert "Holidays &lt;b&gt;" in page
    page = owner.browser.get(f"{owner.base}/calendars/cal_de/").content.decode()
    assert "2026-12-25 Christmas Day" in page
    assert "moved the next run of 1 job" in page
    cell.answers["GET /v1/calendars"] = (200, {"items": [], "next_cursor": None})
    assert "Make the first calendar" in owner.browser.get(f"{owner.base}/calendars/").content.decode()


def test_a_calendar_is_made_of_a_file_and_of_dates(cell: Cell, owner: Signed) -> None:
    ics = SimpleUploadedFile("de.ics", b"\xef\xbb\xbfBEGIN:VCALENDAR", content_type="text/calendar")
    typed = {"calendar_id": "cal_de", "name": "", "dates": "2026-12-24 Christmas Eve\n\n2026-12-31"}
    answer = owner.browser.post(
        f"{owner.base}/calendars/new", {**typed, "weekdays": ["SAT", "SUN"], "ics": ics}
    )
    assert answer["Location"] == f"{owner.base}/calendars/cal_de/"
    (call,) = cell.asked("PUT", CALENDAR)
    assert call.headers["If-None-Match"] == "*"
    assert call.body == {
        "dates": [{"date": "2026-12-24", "name": "Christmas Eve"}, {"date": "2026-12-31", "name": None}],
        "weekdays": ["SAT", "SUN"],
        "ics": "BEGIN:VCALENDAR",
    }


def test_faults_are_at_their_fields_and_nothing_typed_is_lost(cell: Cell, owner: Signed) -> None:
    errors = [{"pointer": "/dates/1", "detail": "is no date"}, {"pointer": "/ics", "detail": "has no event"}]
    cell.answers[f"PUT {CALENDAR}"] = (422, {"status": 422, "code": "INVALID", "errors": errors})
    typed = {"calendar_id": "cal_de", "dates": "2026-12-24\nsoon"}
    answer = owner.browser.post(f"{owner.base}/calendars/new", typed)
    text = answer.content.decode()
    assert answer.status_code == 422
    assert "line 2: is no date" in text
    assert "has no event" in text
    assert "2026-12-24\nsoon" in text
    wrong = owner.browser.post(f"{owner.base}/calendars/new", {"calendar_id": "de", "dates": "2026-12-24"})
    assert "is cal_ and 1 to 64" in wrong.content.decode()
    latin = SimpleUploadedFile("de.ics", b"\xe4", content_type="text/calendar")
    binary = owner.browser.post(f"{owner.base}/calendars/new", {"calendar_id": "cal_de", "ics": latin})
    assert "no text in UTF-8" in binary.content.decode()
    assert len(cell.asked("PUT", CALENDAR)) == 1


def test_an_edit_is_over_the_version_that_was_seen(cell: Cell, owner: Signed) -> None:
    url = f"{owner.base}/calendars/cal_de/"
    assert owner.browser.post(url, {"version": "2", "dates": "2026-12-24"}).status_code == 302
    (call,) = cell.asked("PUT", CALENDAR)
    assert call.headers["If-Match"] == '"2"'
    cell.answers[f"PUT {CALENDAR}"] = (412, {"status": 412, "code": "PRECONDITION_FAILED"})
    answer = owner.browser.post(url, {"version": "1", "dates": "2026-12-24"})
    assert answer.status_code == 409
    assert "Somebody saved this calendar" in answer.content.decode()


def test_a_calendar_that_is_used_stays(cell: Cell, owner: Signed) -> None:
    url = f"{owner.base}/calendars/cal_de/delete"
    assert "1 dates and 2 days of the week" in owner.browser.get(url).content.decode()
    cell.answers[f"DELETE {CALENDAR}"] = (409, {"status": 409, "detail": "The calendar stays: in use."})
    assert "The calendar stays: in use." in owner.browser.post(url, follow=True).content.decode()
    cell.answers[f"DELETE {CALENDAR}"] = (200, {})
    assert owner.browser.post(url)["Location"] == f"{owner.base}/calendars/"


def test_viewers_see_and_do_not_change(cell: Cell) -> None:
    viewer = sign_in("viewer")
    page = viewer.browser.get(f"{viewer.base}/calendars/cal_de/").content.decode()
    assert "Save changes" not in page
    assert viewer.browser.post(f"{viewer.base}/calendars/cal_de/", {"dates": "2026-12-24"}).status_code == 403
    assert viewer.browser.get(f"{viewer.base}/calendars/new").status_code == 403
    assert viewer.browser.get(f"{viewer.base}/jobs/{JOB_ID}/backfill").status_code == 403


def test_the_form_of_a_job_shows_dialects_calendars_and_what_is_left_out(cell: Cell, owner: Signed) -> None:
    quartz = {
        **JOB,
        "overlap_policy": "BUFFER_ONE",
        "schedule": {
            **JOB["schedule"],
            "dialect": "QUARTZ", "cron": "0 0 9 ? * L", "calendar": "cal_de", "roll": "NEXT",
        },
    }  # fmt: skip
    cell.answers[f"GET /v1/jobs/{JOB_ID}"] = (200, quartz)
    url = f"{owner.base}/jobs/{JOB_ID}/edit"
    page = owner.browser.get(url).content.decode()
    for chosen in ('value="QUARTZ" selected', 'value="cal_de" selected', 'value="NEXT" selected'):
        assert chosen in page
    assert 'value="BUFFER_ONE" selected' in page
    assert "Left out by the calendar" in page
    cell.answers[f"PATCH /v1/jobs/{JOB_ID}"] = (200, {**quartz, "version": 2})
    plain = {"dialect": "UNIX", "cron": "0 9 * * *", "calendar": "", "overlap_policy": "SKIP"}
    owner.browser.post(url, {**fields_of(quartz), "version": "1", **plain})
    (call,) = cell.asked("PATCH", f"/v1/jobs/{JOB_ID}")
    assert call.body == {
        "schedule": {"dialect": None, "cron": "0 9 * * *", "calendar": None, "roll": None},
        "overlap_policy": "SKIP",
    }
    detail = owner.browser.get(f"{owner.base}/jobs/{JOB_ID}/").content.decode()
    assert "moves to the next open day" in detail
    assert "waits for its end; only one does" in detail


def test_a_backfill_says_its_numbers_first(cell: Cell, owner: Signed) -> None:
    url = f"{owner.base}/jobs/{JOB_ID}/backfill"
    assert "See what would run" in owner.browser.get(url).content.decode()
    owner.browser.cookies["tz"] = "UTC"
    typed = {"from": "2026-11-28T00:00", "until": "2026-11-30T00:00:00", "max_per_second": "10"}
    page = owner.browser.post(url, typed).content.decode()
    assert "<strong>4</strong> of 5 occurrences will run" in page
    assert "2 records of skipped occurrences" in page
    assert "Run 4 occurrences" in page
    hidden = dict(re.findall(r'type="hidden" name="(planned|token)" value="([^"]+)"', page))
    again = owner.browser.post(url, {**typed, **hidden, "until": "2026-11-30T01:00:00", "start": "1"})
    assert "was changed since" in again.content.decode()
    cell.answers[f"POST {BACKFILL_PATH}"] = (202, BACKFILL)
    answer = owner.browser.post(url, {**typed, **hidden, "start": "1"})
    assert answer["Location"] == f"{owner.base}/backfills/bf_1/"
    twice = owner.browser.post(url, {**typed, **hidden, "start": "1"})
    assert twice["Location"] == f"{owner.base}/backfills/?job_id={JOB_ID}"
    looked, changed, begun = cell.asked("POST", BACKFILL_PATH)
    assert [call.body["dry_run"] for call in (looked, changed, begun)] == [True, True, False]
    assert looked.body["max_per_second"] == 10
    assert looked.body["from"].endswith("Z")


def test_a_backfill_that_cannot_be_is_explained(cell: Cell, owner: Signed) -> None:
    errors = [{"pointer": "/from", "detail": "lies more than 29 days back"}]
    cell.answers[f"POST {BACKFILL_PATH}"] = (422, {"status": 422, "code": "INVALID", "errors": errors})
    typed = {"from": "2020-11-28T00:00", "until": "soon", "max_per_second": "many"}
    answer = owner.browser.post(f"{owner.base}/jobs/{JOB_ID}/backfill", typed)
    assert answer.status_code == 422
    assert "lies more than 29 days back" in answer.content.decode()
    (call,) = cell.asked("POST", BACKFILL_PATH)
    assert (call.body["until"], call.body["max_per_second"]) == ("soon", "many")
    nothing = {**BACKFILL_PLAN, "to_run": 0, "present": 5}
    cell.answers[f"POST {BACKFILL_PATH}"] = (200, nothing)
    page = owner.browser.post(f"{owner.base}/jobs/{JOB_ID}/backfill", typed).content.decode()
    assert "5 have a run already" in page
    assert 'name="start"' not in page


def test_the_progress_of_a_backfill_and_its_stop(cell: Cell, owner: Signed) -> None:
    page = owner.browser.get(f"{owner.base}/backfills/bf_1/").content.decode()
    assert "Backfill: 2 of 5" in page
    assert "every 1s" in page
    assert "Backfill: 2 of 5" in owner.browser.get(f"{owner.base}/backfills/bf_1/live").content.decode()
    assert owner.browser.get(f"{owner.base}/backfills/?job_id={JOB_ID}").status_code == 200
    assert cell.asked("GET", "/v1/backfills")[0].target.endswith(f"job_id={JOB_ID}")
    stopped = owner.browser.post(f"{owner.base}/backfills/bf_1/stop", follow=True).content.decode()
    assert "What it has started runs" in stopped
    assert len(cell.asked("POST", "/v1/backfills/bf_1:stop")) == 1
    over = {**BACKFILL, "state": "DONE", "processed": 5, "started": 4, "finished_at": "2026-11-30T06:42:00Z"}
    cell.answers["GET /v1/backfills/bf_1"] = (200, over)
    done = owner.browser.get(f"{owner.base}/backfills/bf_1/").content.decode()
    assert "4 runs started" in done
    assert "every 1s" not in done
