"""What a new user does first, in a real browser on the whole product."""

from __future__ import annotations

import re
import uuid

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Visitor

pytestmark = [pytest.mark.stack, pytest.mark.timeout(300)]


def test_who_is_not_signed_in_signs_in_first_and_comes_back(visitor: Visitor) -> None:
    visitor.go("/t/demo/jobs/?state=PAUSED")
    expect(visitor.page).to_have_url(re.compile(r"/accounts/login/\?next="))
    visitor.page.get_by_label("Email").fill(visitor.stack.info["email"])
    visitor.page.get_by_label("Password").fill("not the password")
    visitor.page.get_by_role("button", name="Sign in").click()
    expect(visitor.page.get_by_role("alert")).to_be_visible()
    visitor.page.get_by_label("Password").fill(visitor.stack.info["password"])
    visitor.page.get_by_role("button", name="Sign in").click()
    expect(visitor.page).to_have_url(visitor.base + "/t/demo/jobs/?state=PAUSED")
    visitor.page.get_by_role("button", name="Sign out").click()
    visitor.go("/t/demo/")
    expect(visitor.page).to_have_url(re.compile(r"/accounts/login/"))


def test_another_tenants_address_is_not_found(visitor: Visitor) -> None:
    visitor.sign_in()
    for path in (
        "/t/somebody-else/",
        "/t/somebody-else/jobs/",
        "/t/demo/jobs/job_01m8njb93zg06vpdgn4y6fe2g1/",
    ):
        assert visitor.go(path) == 404
        expect(visitor.page.get_by_role("heading", level=1)).to_have_text("There is nothing here")
    # The browser itself reports each 404 as an error of loading.
    visitor.errors = [error for error in visitor.errors if "404" not in error]


def test_a_job_is_created_with_a_live_preview_and_its_run_succeeds(visitor: Visitor) -> None:
    page = visitor.page
    name = f"browser {uuid.uuid4().hex[:6]}"
    visitor.sign_in()
    page.get_by_role("link", name="New job").click()
    preview = page.locator("#preview")
    page.locator("#name").fill(name)
    page.locator("#cron").fill("30 2 * * *")
    page.locator("#time_zone").fill("America/New_York")
    expect(preview).to_contain_text("02:30:00")
    expect(preview).to_contain_text("One time does not exist")
    page.locator("#time_zone").fill("Asia/Tokyo")
    expect(preview).to_contain_text("The clock does not change in this zone.")
    page.locator("#kind").get_by_text("Now", exact=True).click()
    expect(preview).to_contain_text("as soon as you create it")
    expect(page.locator("#time_zone")).to_be_hidden()
    page.locator("#path").fill("/from-the-browser")
    page.locator("#payload").fill('{"from": "the browser"}')
    page.get_by_role("button", name="Create job").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(name)
    # Nothing is reloaded by hand: the page follows the run by itself.
    expect(page.locator("#live")).to_contain_text("Succeeded", timeout=30_000)
    page.locator("tbody tr[data-row] a").first.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Run of")
    expect(page.locator("#live")).to_contain_text("Where the time went")
    page.get_by_text("Answer body").click()
    expect(page.locator("pre.payload")).to_contain_text("/from-the-browser")


def test_errors_are_shown_at_their_fields(visitor: Visitor) -> None:
    page = visitor.page
    visitor.sign_in()
    visitor.go("/t/demo/jobs/new")
    page.locator("#name").fill("stays")
    page.locator("#cron").fill("61 9 * * *")
    expect(page.locator("#fault-cron .fault")).to_be_visible()
    page.locator("#time_zone").fill("Mars/Olympus")
    expect(page.locator("#fault-time_zone .fault")).to_be_visible()
    page.locator("#path").fill("no slash")
    page.get_by_role("button", name="Create job").click()
    expect(page.get_by_role("alert")).to_contain_text("The job was not created.")
    for field in ("cron", "time_zone", "path"):
        expect(page.locator(f"#fault-{field} .fault").first).to_be_visible()
    expect(page.locator("#name")).to_have_value("stays")
    visitor.picture("job-refused")
    visitor.errors = [error for error in visitor.errors if "422" not in error]


def test_a_job_is_paused_resumed_triggered_and_cancelled(visitor: Visitor) -> None:
    page = visitor.page
    visitor.sign_in()
    visitor.go("/t/demo/jobs/new?cron=0+0+1+1+*&name=actions")
    page.get_by_role("button", name="Create job").click()
    dialog = page.get_by_role("dialog", name="Confirm")

    def act(word: str) -> None:
        page.locator(".actions").get_by_role("link", name=word).click()
        expect(dialog).to_be_visible()
        expect(dialog.locator("li").first).to_contain_text("1 ")
        dialog.get_by_role("button", name=word).click()

    page.locator(".actions").get_by_role("link", name="Pause").click()
    dialog.get_by_text("Keep as it is").click()
    expect(dialog).to_be_hidden()
    act("Pause")
    expect(page.locator(".under")).to_contain_text("Paused")
    act("Resume")
    expect(page.locator(".under")).to_contain_text("Scheduled")
    act("Run now")
    expect(page.locator(".under")).to_contain_text("Succeeded", timeout=30_000)
    page.get_by_role("link", name="actions").click()
    act("Cancel job")
    expect(page.get_by_role("status").first).to_contain_text("The job is cancelled.")
    expect(page.locator(".under")).to_contain_text("Cancelled")


def test_a_target_is_registered_shows_its_secret_once_and_is_approved(visitor: Visitor) -> None:
    page = visitor.page
    target = f"tgt_{uuid.uuid4().hex[:8]}"
    visitor.sign_in()
    visitor.go("/t/demo/targets/new")
    page.get_by_label("Base URL").fill(visitor.stack.echo_url + "/base")
    page.locator("#target_id").fill(target)
    page.get_by_role("button", name="Register").click()
    expect(page.locator("#secret")).to_contain_text("whsec_")
    page.get_by_role("button", name="Approve it").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(target)
    expect(page.locator(".under").first).to_contain_text("Approved")
    assert "whsec_" not in page.content()


def test_the_keyboard_is_enough(visitor: Visitor) -> None:
    page = visitor.page
    visitor.sign_in()
    visitor.go("/t/demo/jobs/")
    page.keyboard.press("Tab")
    expect(page.get_by_text("Skip to content")).to_be_focused()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
    page.keyboard.press("Escape")
    page.locator("body").click(position={"x": 700, "y": 850})
    page.keyboard.press("j")
    expect(page.locator("tr.current")).to_have_count(1)
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"/jobs/job_"))
    page.keyboard.press("n")
    expect(page).to_have_url(re.compile(r"/jobs/job_"))  # no new job from here: there is no such button
    visitor.go("/t/demo/jobs/")
    page.keyboard.press("/")
    expect(page.get_by_label("Name begins with")).to_be_focused()


def test_it_works_without_scripts(visitor: Visitor) -> None:
    visitor.sign_in()
    cookies = visitor.page.context.cookies()
    browser = visitor.page.context.browser
    assert browser is not None
    context = browser.new_context(java_script_enabled=False)
    context.add_cookies(cookies)  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(visitor.base + "/t/demo/jobs/new?name=scriptless&cron=0+0+1+1+*")
    page.get_by_role("button", name="Create job").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("scriptless")
    page.locator(".actions").get_by_role("link", name="Cancel job").click()
    expect(page.locator(".confirm li").first).to_contain_text("1 planned occurrence")
    page.get_by_role("button", name="Cancel job").click()
    expect(page.locator(".under")).to_contain_text("Cancelled")
    context.close()


def test_a_cell_that_is_away_is_said_on_the_page(visitor: Visitor) -> None:
    stack, page = visitor.stack, visitor.page
    visitor.sign_in()
    cell = "cell-" + next(iter(stack.info["cells"]))
    stack.stop(cell)
    try:
        assert visitor.go("/t/demo/") == 200
        expect(page.get_by_text("Your cell cannot be reached.")).to_be_visible()
        assert visitor.go("/t/demo/jobs/") == 503
        visitor.picture("cell-away")
    finally:
        stack.start(cell)
    assert visitor.go("/t/demo/jobs/") == 200
    visitor.errors = [error for error in visitor.errors if "503" not in error]
