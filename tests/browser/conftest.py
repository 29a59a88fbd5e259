"""Chromium on the whole product. Pictures of what it saw are left in `pictures/`."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.stack import Stack

PICTURES = Path(__file__).parent / "pictures"
SIGHTS = [(width, theme) for width in (1440, 360) for theme in ("light", "dark")]
_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-default-apps",
)
#: What htmx logs when a page is left while a part of it is being fetched.
_LEAVING = ("htmx:afterRequest", "htmx:sendError", "htmx:sendAbort")
# Several stacks and a test run may share two cores.
expect.set_options(timeout=15_000)


@pytest.fixture(scope="session")
def browser_type_launch_args() -> dict[str, Any]:
    """The system's Chromium: Playwright's own cannot be counted on to be downloadable."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        hint = "Chromium is missing (apt-get install chromium): the pages were NOT tested in a browser"
        if os.environ.get("CI"):
            pytest.fail(hint)
        pytest.skip(hint)
    return {"executable_path": chromium, "args": list(_FLAGS)}


class Visitor:
    """A page with what a person does on it. Errors of the browser's console fail the test."""

    def __init__(self, page: Page, stack: Stack) -> None:
        self.page = page
        self.stack = stack
        self.base = str(stack.info["console_url"])
        self.errors: list[str] = []
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", lambda said: self.errors.append(said.text) if said.type == "error" else None)

    def go(self, path: str) -> int:
        """Open a page; its status."""
        answer = self.page.goto(self.base + path)
        return answer.status if answer else 0

    def sign_in(self) -> None:
        """As the demo tenant's owner."""
        self.go("/accounts/login/")
        self.page.get_by_label("Email").fill(self.stack.info["email"])
        self.page.get_by_label("Password").fill(self.stack.info["password"])
        self.page.get_by_role("button", name="Sign in").click()
        expect(self.page).to_have_url(self.base + "/t/demo/")

    def picture(self, name: str) -> None:
        """Keep what is seen, and check that nothing is wider than the screen."""
        PICTURES.mkdir(exist_ok=True)
        width = self.page.viewport_size["width"] if self.page.viewport_size else 0
        theme = (
            "dark" if self.page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches") else "light"
        )
        self.page.screenshot(path=PICTURES / f"{name}-{width}-{theme}.png", full_page=True)
        assert self.page.evaluate("document.documentElement.scrollWidth") <= width, name


def _visitor(browser: Browser, stack: Stack, width: int, theme: str) -> Iterator[Visitor]:
    context = browser.new_context(
        viewport={"width": width, "height": 900},
        color_scheme="dark" if theme == "dark" else "light",
        timezone_id="Europe/Berlin",
    )
    visitor = Visitor(context.new_page(), stack)
    yield visitor
    context.close()
    assert [error for error in visitor.errors if not error.startswith(_LEAVING)] == []


@pytest.fixture
def visitor(browser: Browser, stack: Stack) -> Iterator[Visitor]:
    """A wide, light screen."""
    yield from _visitor(browser, stack, *SIGHTS[0])


@pytest.fixture(params=SIGHTS, ids=lambda sight: f"{sight[0]}-{sight[1]}")
def every_visitor(browser: Browser, stack: Stack, request: pytest.FixtureRequest) -> Iterator[Visitor]:
    """Each width and theme in turn."""
    yield from _visitor(browser, stack, *request.param)
