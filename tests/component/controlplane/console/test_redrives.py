"""Dead letters tried again or done with: what is frozen, shown, begun, followed and stopped."""

from __future__ import annotations

import pytest

from tests.component.controlplane.console.cell import JOB_ID, RUN_ID, Cell
from tests.component.controlplane.console.conftest import Signed, sign_in
from tests.component.controlplane.console.past import LETTER, LETTERS, REDRIVE

pytestmark = pytest.mark.django_db


def test_a_filter_is_frozen_and_nothing_happens_yet(cell: Cell, owner: Signed) -> None:
    form = {"action": "redrive", "fingerprint": "abc", "target": "tgt_echo", "reason": "FAILED",
            "failed_from": "2026-11-30T06:00:00Z", "odd": "x"}  # fmt: skip
    page = owner.browser.post(f"{owner.base}/dlq/choose", form).content.decode()
    (call,) = cell.asked("POST", "/v1/dlq:redrive")
    assert call.body == {
        "filter": {
            "target_id": "tgt_echo", "fingerprint": "abc", "reason": "FAILED",
            "failed_after": "2026-11-30T06:00:00Z",
        },
        "dry_run": True,
    }  # fmt: skip
    assert "Redrive 1\u202f234 dead letters" in page
    assert "way to fail <code>abc</code>" in page
    assert "One of each way to fail goes first" in page
    assert "Digest &lt;b&gt;" in page
    assert "and 1\u202f233 more" in page
    assert LETTERS["hash"][:16] in page  # type: ignore[index]


def test_ticked_letters_are_meant_alone(cell: Cell, owner: Signed) -> None:
    form = {"action": "purge", "run": [RUN_ID], "fingerprint": "abc"}
    cell.answers["POST /v1/dlq:purge"] = (201, {**LETTERS, "action": "purge", "count": 1})
    page = owner.browser.post(f"{owner.base}/dlq/choose", form).content.decode()
    (call,) = cell.asked("POST", "/v1/dlq:purge")
    assert call.body == {"filter": {"run_ids": [RUN_ID]}, "dry_run": True}
    assert "Those you ticked" in page
    assert "cannot be undone" in page
    many = {"action": "purge", "run": [f"{JOB_ID}:{n}" for n in range(1001)]}
    told = owner.browser.post(f"{owner.base}/dlq/choose", many, follow=True)
    assert b"1001 rows are ticked" in told.content
    assert len(cell.asked("POST", "/v1/dlq:purge")) == 1


def test_what_fits_no_more_and_faults_are_said_on_the_list(cell: Cell, owner: Signed) -> None:
    cell.answers["POST /v1/dlq:redrive"] = (201, {**LETTERS, "count": 0})
    form = {"action": "redrive", "fingerprint": "abc"}
    answer = owner.browser.post(f"{owner.base}/dlq/choose", form)
    assert answer["Location"] == f"{owner.base}/dlq/?fingerprint=abc"
    assert b"No open dead letter fits" in owner.browser.get(answer["Location"]).content
    fault = {"pointer": "/filter/job_id", "detail": "is not the id of a job"}
    cell.answers["POST /v1/dlq:redrive"] = (422, {"detail": "1 fault", "errors": [fault]})
    told = owner.browser.post(f"{owner.base}/dlq/choose", {**form, "job_id": "x"}, follow=True)
    assert b"is not the id of a job" in told.content
    assert owner.browser.post(f"{owner.base}/dlq/choose", {"action": "explode"}).status_code == 404


def test_what_is_begun_is_what_was_shown(cell: Cell, owner: Signed) -> None:
    cell.answers["POST /v1/dlq:redrive"] = (202, REDRIVE)
    form = {
        "action": "redrive", "selection_id": "sel_2", "hash": "cd" * 32, "max_per_second": "5",
        "fingerprint": "abc",
    }  # fmt: skip
    answer = owner.browser.post(f"{owner.base}/dlq/begin", form)
    assert answer["Location"] == f"{owner.base}/redrives/op_2/"
    (call,) = cell.asked("POST", "/v1/dlq:redrive")
    assert call.body == {"selection_id": "sel_2", "hash": "cd" * 32, "max_per_second": 5}


def test_a_pace_that_cannot_be_is_said_at_its_field(cell: Cell, owner: Signed) -> None:
    fault = {"pointer": "/max_per_second", "detail": "is above 1000"}
    cell.turns["POST /v1/dlq:redrive"] = [(422, {"detail": "1 fault", "errors": [fault]}), (201, LETTERS)]
    form = {"action": "redrive", "selection_id": "sel_2", "hash": "cd" * 32, "max_per_second": "9999",
            "fingerprint": "abc"}  # fmt: skip
    answer = owner.browser.post(f"{owner.base}/dlq/begin", form)
    page = answer.content.decode()
    assert answer.status_code == 422
    assert "is above 1000" in page
    assert 'value="9999"' in page
    assert 'name="fingerprint" value="abc"' in page
    cell.turns["POST /v1/dlq:redrive"] = [(409, {"detail": "The selection has expired."}), (201, LETTERS)]
    again = owner.browser.post(f"{owner.base}/dlq/begin", form).content.decode()
    assert "The selection has expired." in again


def test_progress_is_followed_until_the_last_run_has_ended(cell: Cell, owner: Signed) -> None:
    url = f"{owner.base}/redrives/op_2/"
    page = owner.browser.get(url).content.decode()
    assert "Redriving: 1 of 1\u202f234" in page
    assert 'aria-current="step"' in page
    assert page.index("stage-now") < page.index("Ten more of each")
    assert "1 under way" in page
    assert "way to fail <code>abc</code>" in page
    assert 'hx-trigger="every 1s"' in page
    rest = {"stage": "rest", "processed": 617, "done": 610, "unchanged": 5, "failed": 2}
    runs = {"SUCCEEDED": 500, "FAILED": 10, "RUNNING": 100}
    gone = {"reasons": {"its run is no longer kept": 2},
            "failures": [{"run_id": RUN_ID, "reason": "its run is no longer kept"}]}  # fmt: skip
    cell.answers["GET /v1/redrives/op_2"] = (200, {**REDRIVE, **rest, **gone, "runs": runs})
    page = owner.browser.get(url + "live").content.decode()
    assert "Failed again" in page
    assert "100 under way" in page
    assert "about " in page
    assert "its run is no longer kept" in page
    over = {**REDRIVE, "state": "DONE", "stage": None, "processed": 1234, "done": 1234,
            "finished_at": "2026-11-30T06:42:00Z"}  # fmt: skip
    cell.answers["GET /v1/redrives/op_2"] = (200, {**over, "runs": {"SUCCEEDED": 1200, "RETRY_WAIT": 34}})
    assert 'hx-trigger="every 1s"' in owner.browser.get(url).content.decode()
    cell.answers["GET /v1/redrives/op_2"] = (200, {**over, "runs": {"SUCCEEDED": 1234}})
    ended = owner.browser.get(url).content.decode()
    assert "1\u202f234 dead letters redriven" in ended
    assert "hx-trigger" not in ended


def test_one_that_stopped_by_itself_says_why(cell: Cell, owner: Signed) -> None:
    why = "one failed again as before (abc): HTTP 500 from tgt_echo"
    halted = {**REDRIVE, "state": "STOPPED", "stage": None, "stop_reason": why, "runs": {"FAILED": 1},
              "finished_at": "2026-11-30T06:42:00Z"}  # fmt: skip
    cell.answers["GET /v1/redrives/op_2"] = (200, halted)
    page = owner.browser.get(f"{owner.base}/redrives/op_2/").content.decode()
    assert "It stopped by itself" in page
    assert why in page
    assert "Stopped after 1 of 1\u202f234" in page
    cell.answers["GET /v1/redrives"] = (200, {"items": [halted], "next_cursor": "n"})
    listed = owner.browser.get(f"{owner.base}/redrives/?state=STOPPED").content.decode()
    assert "Stopped by itself" in listed
    assert "state=STOPPED&amp;cursor=n" in listed


def test_only_who_may_write_begins_or_stops(cell: Cell, owner: Signed) -> None:
    cell.answers["GET /v1/dlq"] = (
        200, {"items": [LETTER], "groups": [], "truncated": False, "next_cursor": None},
    )  # fmt: skip
    assert b"Redrive \xe2\x80\xa6" in owner.browser.get(f"{owner.base}/dlq/").content
    assert owner.browser.post(f"{owner.base}/redrives/op_2/stop").status_code == 302
    viewer = sign_in("viewer")
    for path in ("dlq/choose", "dlq/begin", "redrives/op_2/stop"):
        assert viewer.browser.post(f"{viewer.base}/{path}", {"action": "redrive"}).status_code == 403, path
    assert b"data-tick" not in viewer.browser.get(f"{viewer.base}/dlq/").content
    assert b">Stop<" not in viewer.browser.get(f"{viewer.base}/redrives/op_2/").content
    assert len(cell.asked("POST", "/v1/redrives/op_2:stop")) == 1
    cell.answers["GET /v1/redrives"] = (200, {"items": [], "next_cursor": None})
    assert b"No redrives or purges yet" in viewer.browser.get(f"{viewer.base}/redrives/").content
