"""People and keys in a real browser: invited and in, a second factor, a key that works, a guest."""

from __future__ import annotations

import re
import subprocess
import time
import uuid
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import Visitor, visiting
from tests.component.controlplane.totp import totp_code
from tests.stack import Stack
from tests.waiting import eventually_sync

pytestmark = [pytest.mark.stack, pytest.mark.timeout(300)]
_PASSWORD = "a long enough passphrase"


def _mail_to(stack: Stack, address: str) -> str:
    """The text of the newest mail to an address, once it is there."""

    def found() -> list[str]:
        texts = [path.read_text() for path in sorted(Path(stack.home.folder / "mail").glob("*.eml"))]
        return [text for text in texts if f"To: {address}" in text]

    eventually_sync(lambda: bool(found()), 30)
    return found()[-1]


def _invite(owner: Visitor, email: str) -> str:
    """Invites as the owner; the path of the link in the mail."""
    owner.go("/t/demo/settings/members/")
    owner.page.get_by_label("Email").fill(email)
    owner.page.get_by_role("button", name="Invite").click()
    expect(owner.page.get_by_role("status").first).to_contain_text(f"{email} is invited")
    expect(owner.page.locator("tr", has_text=email)).to_contain_text("Developer")
    text = _mail_to(owner.stack, email).replace("=\n", "").replace("=3D", "=")
    link = re.search(r"http://\S+(/invitations/\S+)", text)
    assert link is not None, text
    return link[1]


def _enter_password(page: Page, email: str) -> None:
    page.get_by_label("Email").fill(email)
    page.get_by_label("Password", exact=True).fill(_PASSWORD)
    page.get_by_role("button", name="Sign in").click()


def _new_member(visitor: Visitor, browser: Browser) -> str:
    """A person who was invited to the demo tenant and joined; their address."""
    email = f"{uuid.uuid4().hex[:8]}@example.com"
    visitor.sign_in()
    path = _invite(visitor, email)
    with visiting(browser, visitor.stack, 1440, "light") as guest:
        guest.go(path)
        expect(guest.page.get_by_role("heading", level=1)).to_have_text("Join Demo")
        guest.picture("invitation-open")
        guest.page.get_by_label("Password").fill(_PASSWORD)
        guest.page.get_by_role("button", name="Join").click()
        expect(guest.page).to_have_url(guest.base + "/t/demo/")
        # The link is used up.
        assert guest.go(path) == 410
    return email


def test_invited_joined_signed_in(visitor: Visitor, browser: Browser) -> None:
    email = _new_member(visitor, browser)
    with visiting(browser, visitor.stack, 360, "dark") as person:
        person.go("/t/demo/jobs/")
        _enter_password(person.page, email)
        expect(person.page).to_have_url(person.base + "/t/demo/jobs/")
        assert person.go("/t/demo/settings/members/") == 403
        person.go("/t/demo/settings/")
        expect(person.page.get_by_text("You are developer here")).to_be_visible()
    visitor.go("/t/demo/settings/members/")
    row = visitor.page.locator("tr", has_text=email)
    row.get_by_role("link", name="Remove").click()
    dialog = visitor.page.get_by_role("dialog", name="Confirm")
    expect(dialog).to_contain_text("1 person loses access")
    dialog.get_by_role("button", name="Remove").click()
    expect(visitor.page.get_by_role("status").first).to_contain_text("is no member any more")


def test_a_second_factor_is_set_up_and_asked_for(visitor: Visitor, browser: Browser) -> None:
    email = _new_member(visitor, browser)
    with visiting(browser, visitor.stack, 1440, "light") as person:
        page = person.page
        person.go("/accounts/login/")
        _enter_password(page, email)
        expect(page).to_have_url(person.base + "/t/demo/")
        person.go("/accounts/2fa/")
        page.get_by_role("link", name="Set up").click()
        page.get_by_label("Password").fill(_PASSWORD)
        page.get_by_role("button", name="Confirm").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Set up an authenticator app")
        person.picture("second-factor-set-up")
        secret = page.locator("#totp-secret").inner_text().strip()
        page.get_by_label("Code").fill(totp_code(secret))
        page.get_by_role("button", name="Turn on").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Recovery codes")
        person.picture("recovery-codes")
        codes = page.locator("#codes").inner_text().split()
        assert len(codes) == 10
        page.get_by_role("button", name="Sign out").click()
        assert "Signing in asks for a code" in _mail_to(visitor.stack, email)

        person.go("/accounts/login/")
        _enter_password(page, email)
        expect(page.get_by_role("heading", level=1)).to_have_text("Enter your code")
        person.picture("second-factor")
        page.get_by_label("Code").fill("000000")
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("alert")).to_be_visible()
        page.get_by_label("Code").fill(totp_code(secret, at=time.time() + 30))
        page.get_by_role("button", name="Sign in").click()
        expect(page).to_have_url(person.base + "/t/demo/")


def test_a_key_made_in_the_browser_works_with_the_curl_beside_it(visitor: Visitor) -> None:
    page = visitor.page
    name = f"robot {uuid.uuid4().hex[:6]}"
    visitor.sign_in()
    visitor.go("/t/demo/settings/keys/")
    page.get_by_role("link", name="New key").click()
    page.get_by_label("Name").fill(name)
    page.get_by_role("button", name="Make the key").click()
    expect(page.locator("#key-text")).to_contain_text("ch_live_")
    visitor.picture("key-made")
    command = page.locator("#key-curl").inner_text()

    def answer() -> str:
        done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=30, check=False)
        return done.stdout

    eventually_sync(lambda: '"slug":"demo"' in answer(), 15)
    visitor.go("/t/demo/settings/keys/")
    row = page.locator("tr", has_text=name)
    assert "ch_live_" + command.split("ch_live_")[1].split("_")[0] in row.inner_text()
    row.get_by_role("link", name="Revoke").click()
    dialog = page.get_by_role("dialog", name="Confirm")
    expect(dialog).to_contain_text("refused within five seconds")
    dialog.get_by_role("button", name="Revoke").click()
    expect(page.get_by_role("status").first).to_contain_text("is revoked")
    eventually_sync(lambda: '"slug":"demo"' not in answer(), 15)


def test_getting_started_with_a_key_of_ones_own(visitor: Visitor) -> None:
    page = visitor.page
    visitor.sign_in()
    page.get_by_role("link", name="Getting started").click()
    page.get_by_role("button", name="Make a key for this page").click()
    expect(page.locator("#start-key")).to_contain_text("CLOCKHOUSE_API_KEY=ch_live_")
    visitor.picture("start-with-key")
    command = page.locator("#start-curl").inner_text()
    page.get_by_text("Python", exact=True).click()
    expect(page.locator("#start-python")).to_be_visible()

    def made() -> bool:
        done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=30, check=False)
        return '"job_id":"job_' in done.stdout

    eventually_sync(made, 15)


def test_an_operator_visits_and_every_page_says_so(visitor: Visitor, browser: Browser) -> None:
    with visiting(browser, visitor.stack, 1440, "light") as operator:
        page = operator.page
        operator.sign_in_as("operator")
        operator.go("/admin/pages/tenants/demo/")
        page.get_by_label("Reason, shown to the tenant").fill("Ticket 17: a job that does not run")
        page.get_by_role("button", name="Sign in as demo").click()
        banner = page.get_by_role("complementary", name="Support visit")
        for path in ("/t/demo/", "/t/demo/jobs/", "/t/demo/runs/"):
            operator.go(path)
            expect(banner).to_contain_text("Ticket 17")
        operator.picture("support-visit")
        assert operator.go("/t/demo/settings/keys/") == 403
        operator.go("/t/demo/")
        banner.get_by_role("button", name="End the visit").click()
        assert operator.go("/t/demo/") == 404
    visitor.sign_in()
    visitor.go("/t/demo/settings/audit?action=support.")
    expect(visitor.page.locator("tbody tr")).to_have_count(2)
    expect(visitor.page.locator("tbody")).to_contain_text("Clockhouse operator")


def test_the_reference_is_drawn_under_the_strict_policy(visitor: Visitor) -> None:
    visitor.sign_in()
    visitor.page.get_by_role("link", name="API reference").click()
    jobs = visitor.page.locator("#reference").get_by_role("link", name="Jobs", exact=True)
    # Nearly two hundred operations are drawn by the browser: a busy machine takes a while.
    expect(jobs).to_be_visible(timeout=60_000)
    jobs.click()
    expect(visitor.page.locator("#reference")).to_contain_text("/v1/jobs", timeout=60_000)
    visitor.picture("reference-open")
