"""What people do all day: change jobs, one and many, and find out why a run failed."""

from __future__ import annotations

import re
import uuid
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.api import Api
from tests.browser.conftest import Visitor
from tests.stack import Stack

pytestmark = [pytest.mark.stack, pytest.mark.timeout(300)]

YEARLY = {"type": "CRON", "cron": "0 0 1 1 *", "time_zone": "UTC"}


def api_of(stack: Stack) -> Api:
    """The demo tenant's API."""
    return Api(stack.info["api_url"], stack.info["api_key"])


def make(stack: Stack, name: str, **more: Any) -> str:
    """A job that does nothing by itself, unless it is given another schedule."""
    body = {"name": name, "schedule": YEARLY, "target": {"target_id": "tgt_echo", "path": "/work"}, **more}
    return str(api_of(stack).create_job(body)["job_id"])


def heading(page: Page) -> Any:
    return expect(page.get_by_role("heading", level=1))


def test_many_jobs_are_paused_by_a_frozen_selection(visitor: Visitor) -> None:
    stack, page = visitor.stack, visitor.page
    tag = f"bulk-{uuid.uuid4().hex[:6]}"
    for number in range(30):
        make(stack, f"{tag} {number:02d}", tags=[tag])
    visitor.sign_in()
    visitor.go(f"/t/demo/jobs/?tag={tag}")
    page.get_by_role("button", name="Pause …").click()
    # No row is ticked: all that fit are meant only if that is said.
    heading(page).to_have_text("No job is ticked")
    page.locator("main").get_by_role("button", name="All that fit …").click()
    heading(page).to_have_text("Pause 30 jobs")
    # What is created now is not meant.
    late = make(stack, f"{tag} late", tags=[tag])
    visitor.picture("selection")
    page.locator("main").get_by_role("button", name="Pause 30 jobs").click()
    expect(page).to_have_url(re.compile(r"/operations/op_"))
    # The page follows by itself.
    heading(page).to_have_text("30 jobs paused", timeout=30_000)
    visitor.picture("operation")
    page.get_by_role("link", name="See the jobs that are paused").click()
    expect(page.locator("tbody .state").first).to_contain_text("Paused")
    assert api_of(stack).get(f"/v1/jobs/{late}")["status"] == "SCHEDULED"

    visitor.go(f"/t/demo/jobs/?tag={tag}&state=PAUSED")
    page.keyboard.press("j")
    page.keyboard.press("x")
    page.keyboard.press("j")
    page.keyboard.press("x")
    expect(page.locator("[data-bulk-count]")).to_have_text("2 ticked jobs")
    page.get_by_role("button", name="Resume …").click()
    heading(page).to_have_text("Resume 2 jobs")
    page.locator("main").get_by_role("button", name="Resume 2 jobs").click()
    heading(page).to_have_text("2 jobs scheduled again", timeout=30_000)
    visitor.go("/t/demo/operations/")
    expect(page.locator("tbody tr").first).to_contain_text("Resume")


def test_an_edit_that_was_overtaken_shows_what_differs(visitor: Visitor) -> None:
    stack, page = visitor.stack, visitor.page
    job = make(stack, "edited by two", payload={"keep": 12345678901234567, "change": 1})
    visitor.sign_in()
    visitor.go(f"/t/demo/jobs/{job}/")
    page.keyboard.press("e")
    heading(page).to_have_text("Edit edited by two")
    page.locator("#cron").fill("30 6 1 1 *")
    expect(page.locator("#preview")).to_contain_text("06:30:00")
    page.locator("#payload").fill('{"keep": 12345678901234567, "change": 2}')
    api_of(stack).call("PATCH", f"/v1/jobs/{job}", {"priority": "HIGH"})
    page.get_by_role("button", name="Save changes").click()
    overtaken = page.locator("#overtaken")
    expect(overtaken).to_contain_text("Somebody saved version 2 while you were editing.")
    expect(overtaken.locator("tr", has_text="priority")).to_contain_text("HIGH")
    expect(page.locator("#cron")).to_have_value("30 6 1 1 *")
    visitor.picture("job-overtaken")
    page.locator("#priority").select_option("HIGH")
    page.get_by_role("button", name="Save changes").click()
    expect(page.get_by_role("status").first).to_contain_text("Saved as version 3.")
    found = api_of(stack).get(f"/v1/jobs/{job}")
    assert (found["priority"], found["schedule"]["cron"]) == ("HIGH", "30 6 1 1 *")
    assert found["payload"] == {"keep": 12345678901234567, "change": 2}
    visitor.errors = [error for error in visitor.errors if "409" not in error]


def test_a_job_is_duplicated(visitor: Visitor) -> None:
    job = make(visitor.stack, "original", tags=["copied"], priority="LOW")
    visitor.sign_in()
    visitor.go(f"/t/demo/jobs/{job}/")
    visitor.page.get_by_role("link", name="Duplicate").click()
    expect(visitor.page.locator("#name")).to_have_value("original (copy)")
    visitor.page.get_by_role("button", name="Create job").click()
    heading(visitor.page).to_have_text("original (copy)")
    expect(visitor.page.locator(".facts").first).to_contain_text("low")


def test_a_failed_run_tells_its_story_and_is_run_again(visitor: Visitor) -> None:
    page = visitor.page
    job = make(
        visitor.stack,
        "fails for good",
        schedule={"type": "NOW"},
        target={"target_id": "tgt_echo", "path": "/status/500"},
        retry_policy={"max_attempts": 2, "initial_backoff_seconds": 1, "max_backoff_seconds": 1},
    )
    visitor.sign_in()
    visitor.go(f"/t/demo/jobs/{job}/")
    expect(page.locator("#live")).to_contain_text("Failed", timeout=30_000)
    page.locator("#live tbody tr").first.get_by_role("link").first.click()
    expect(page.get_by_text("Failed for good:")).to_be_visible()
    expect(page.locator(".gantt-row .gantt-name")).to_have_text(["Attempt 1", "Attempt 2"])
    page.get_by_text("Headers sent").first.click()
    expect(page.get_by_text("X-Fencing-Token", exact=True).first).to_be_visible()
    visitor.picture("run-failed")
    page.get_by_role("link", name="All that failed this way").click()
    expect(page.locator("tr[aria-current]")).to_contain_text("HTTP 500")
    row = page.locator("tr", has_text="fails for good").first
    row.get_by_role("link", name="Run again").click()
    dialog = page.get_by_role("dialog", name="Confirm")
    expect(dialog).to_contain_text("1 new run starts now")
    dialog.get_by_role("button", name="Run again now").click()
    expect(page.get_by_role("status").first).to_contain_text("A new run of fails for good was started.")


def test_dead_letters_are_redriven_as_they_were_shown(visitor: Visitor) -> None:
    page = visitor.page
    job = make(
        visitor.stack,
        "fails again",
        schedule={"type": "NOW"},
        target={"target_id": "tgt_echo", "path": "/status/418"},
        retry_policy={"max_attempts": 1},
    )
    visitor.sign_in()
    visitor.go(f"/t/demo/jobs/{job}/")
    expect(page.locator("#live")).to_contain_text("Failed", timeout=30_000)
    visitor.go(f"/t/demo/dlq/?job_id={job}")
    page.get_by_role("button", name="Redrive …", exact=True).click()
    heading(page).to_have_text("Redrive 1 dead letter")
    visitor.picture("redrive-choose")
    page.get_by_label("A second, at most").fill("5")
    page.get_by_role("button", name="Redrive 1 dead letter").click()
    failed = page.locator(".figure", has_text="Failed again").locator(".figure-value")
    expect(failed).to_have_text("1", timeout=30_000)
    page.get_by_role("link", name="All redrives and purges").click()
    expect(page.locator("tbody tr").first).to_contain_text("Redrive")


def test_why_it_did_not_run(visitor: Visitor) -> None:
    page = visitor.page
    job = make(visitor.stack, "never asked")
    visitor.sign_in()
    visitor.go(f"/t/demo/jobs/{job}/")
    page.locator("#at").fill("2020-01-01T09:00:00")
    page.get_by_role("button", name="Find out").click()
    expect(page.locator("#why")).to_contain_text("The job did not exist yet.")
    visitor.go(f"/t/demo/jobs/{job}/why?at=2030-06-01T12:00:00Z")
    expect(page.locator("#why")).to_contain_text("has no occurrence then")


def test_a_target_is_disabled_and_approved_again(visitor: Visitor) -> None:
    stack, page = visitor.stack, visitor.page
    target = f"tgt_{uuid.uuid4().hex[:8]}"
    api_of(stack).register_target(stack.echo_url + "/health", target_id=target)
    make(stack, f"calls {target}", target={"target_id": target, "path": "/x"})
    visitor.sign_in()
    visitor.go(f"/t/demo/targets/{target}/")
    expect(page.get_by_text(f"calls {target}").first).to_be_visible()
    dialog = page.get_by_role("dialog", name="Confirm")
    page.get_by_role("link", name="Disable").click()
    expect(dialog).to_contain_text("1 scheduled job calls it")
    dialog.get_by_role("button", name="Disable").click()
    expect(page.locator(".under").first).to_contain_text("Disabled")
    page.locator("#live").get_by_role("link", name=f"calls {target}").click()
    expect(page.locator("#live .notice")).to_contain_text(f"Its target {target} is disabled")
    visitor.go(f"/t/demo/targets/{target}/")
    page.get_by_role("link", name="Approve").click()
    dialog.get_by_role("button", name="Approve").click()
    expect(page.locator(".under").first).to_contain_text("Approved")


def test_a_lost_connection_says_so_and_the_page_recovers(visitor: Visitor) -> None:
    page = visitor.page
    visitor.sign_in()
    page.context.set_offline(True)
    expect(page.locator("#lost")).to_be_visible(timeout=30_000)
    page.context.set_offline(False)
    expect(page.locator("#lost")).to_be_hidden(timeout=30_000)
    visitor.errors.clear()  # the browser reports each request that could not be sent


def test_activity_has_a_table_and_leads_to_the_runs(visitor: Visitor) -> None:
    page = visitor.page
    visitor.sign_in()
    visitor.go("/t/demo/activity")
    page.get_by_text("The same as a table").click()
    # Minutes in which something ended; those in which a run only began lead nowhere.
    page.locator("#figures-table tbody tr a").first.click()
    expect(page).to_have_url(re.compile(r"/runs/\?finished_from=\d{4}-.*finished_until="))
    expect(page.locator("tbody tr").first).to_be_visible()
