"""newcomer: somebody who has read nothing signs in, registers and approves a target, creates a cron
job with a live preview, sees it run, finds out from the pages why it fails when the target breaks,
and in all that looking around calls nothing twice."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from playwright.sync_api import Locator, Page, expect, sync_playwright

from tests.api import Api
from tests.browser.chromium import FLAGS, MISSING, chromium
from tests.recorder import Recorder
from tests.stack import Stack

#: A cron job begins at a full minute; then its run must be seen.
A_MINUTE = 75_000


@dataclass
class Journey:
    """What the newcomer did so far."""

    page: Page
    steps: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    pages: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.on("framenavigated", lambda frame: self.pages.append(frame.url))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))

    @contextmanager
    def step(self, words: str) -> Iterator[None]:
        """Something a person would say they did."""
        began = time.monotonic()
        yield
        self.steps.append(words)
        self.seconds[words] = round(time.monotonic() - began, 1)


def main() -> dict[str, Any]:
    with Recorder() as target, Stack() as stack:
        return run_newcomer(stack, target)


def run_newcomer(stack: Stack, target: Recorder) -> dict[str, Any]:
    path = chromium()
    if path is None:
        raise RuntimeError(MISSING)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        journey = Journey(browser.new_page(viewport={"width": 1440, "height": 900}))
        expect.set_options(timeout=20_000)
        found = _travel(stack, target, journey)
        browser.close()
    keys = target.keys()
    runs = Api(stack.info["api_url"], stack.info["api_key"]).get("/v1/runs", job_id=found["job_id"])["items"]
    # What the schedule started has the occurrence's name alone; by hand there is a number behind it.
    by_hand = [run["run_id"] for run in runs if not run["run_id"].endswith(":00Z")]
    called = [run for run in runs if run["state"] in ("SUCCEEDED", "FAILED", "RUNNING")]
    return {
        "holds": found["reason_found"]
        and set(keys.values()) == {1}
        and len(target.calls) == len(called)
        and not by_hand
        and not journey.errors,
        "steps": len(journey.steps),
        "pages": len(journey.pages),
        "seconds": round(sum(journey.seconds.values()), 1),
        "seconds_by_step": journey.seconds,
        "calls": len(target.calls),
        "calls_repeated": sum(count - 1 for count in keys.values()),
        "runs": len(called),
        "runs_by_hand": len(by_hand),
        "script_errors": journey.errors,
    }


def _travel(stack: Stack, target: Recorder, journey: Journey) -> dict[str, Any]:
    page, target_id, name = journey.page, f"tgt_{secrets.token_hex(4)}", f"newcomer {secrets.token_hex(3)}"
    with journey.step("signs in"):
        page.goto(stack.info["console_url"])
        page.get_by_label("Email").fill(stack.info["email"])
        page.get_by_label("Password", exact=True).fill(stack.info["password"])
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
    with journey.step("registers a target and approves it"):
        page.get_by_role("navigation").get_by_role("link", name="Targets").first.click()
        page.get_by_role("link", name="Register a target").click()
        page.get_by_label("Base URL").fill(target.url)
        page.locator("#target_id").fill(target_id)
        page.get_by_role("button", name="Register").click()
        expect(page.locator("#secret")).to_contain_text("whsec_")
        page.get_by_role("button", name="Approve it").click()
        expect(page.get_by_text("Approved").first).to_be_visible()
    with journey.step("creates a cron job and sees when it will run"):
        page.get_by_role("navigation").get_by_role("link", name="Jobs").first.click()
        page.get_by_role("link", name="New job").first.click()
        page.locator("#name").fill(name)
        page.locator("#cron").fill("* * * * *")
        page.locator("#time_zone").fill("Europe/Berlin")
        expect(page.locator("#preview")).to_contain_text(re.compile(r"\d\d:\d\d:00"))
        page.locator("#target_id").select_option(target_id)
        page.locator("#path").fill("/nightly")
        page.get_by_text("Retries, priority").click()
        page.locator("#max_attempts").fill("1")
        page.locator("#dispatch_window_seconds").fill("1")
        page.get_by_role("button", name="Create job").click()
        expect(page.get_by_role("heading", level=1)).to_have_text(name)
    job_id = page.url.rstrip("/").split("/")[-1]
    with journey.step("sees it run"):
        # The page follows by itself; nobody reloads it.
        expect(_occurrence(page, "Succeeded")).to_be_visible(timeout=A_MINUTE)
    with journey.step("breaks the target and sees the next run fail"):
        target.status = 500
        expect(_occurrence(page, "Failed")).to_be_visible(timeout=A_MINUTE)
    with journey.step("finds the failure from the overview, and its reason"):
        reason_found = _look_for_the_reason(page, target_id, name)
    with journey.step("pauses the job"):
        page.get_by_role("link", name=name).first.click()
        page.locator(".actions").get_by_role("link", name="Pause").click()
        page.get_by_role("dialog", name="Confirm").get_by_role("button", name="Pause").click()
        expect(page.locator(".under")).to_contain_text("Paused")
    return {"job_id": job_id, "reason_found": reason_found}


def _occurrence(page: Page, state: str) -> Locator:
    return page.locator("#live tbody tr").filter(has_text=state).first


def _look_for_the_reason(page: Page, target_id: str, name: str) -> bool:
    page.get_by_role("navigation").get_by_role("link", name="Overview").first.click()
    page.get_by_role("listitem").filter(has_text=target_id).get_by_role("link").first.click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Dead letters")
    expect(page.locator("tbody").last).to_contain_text("HTTP 500")
    # Curious, the newcomer opens what would run it again, reads what it says, and leaves it.
    again = page.get_by_role("link", name=re.compile("Run again")).first
    if again.is_visible():
        again.click()
        dialog = page.get_by_role("dialog", name="Confirm")
        expect(dialog).to_be_visible()
        page.keyboard.press("Escape")
        expect(dialog).to_be_hidden()
    page.locator("table").last.locator("tbody tr").first.get_by_role("link").first.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Run of")
    live = page.locator("#live")
    expect(live).to_contain_text("Failed for good")
    expect(live).to_contain_text("HTTP 500")
    page.get_by_text("Answer body").first.click()
    expect(page.locator("pre.payload").first).to_contain_text("seen")
    return name in (page.get_by_role("navigation", name="Breadcrumb").text_content() or "")
