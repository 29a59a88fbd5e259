"""Chromium on the whole product. Pictures of what it saw are left in `pictures/`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.chromium import FLAGS, MISSING, chromium
from tests.stack import Stack

PICTURES = Path(__file__).parent / "pictures"
HEIGHT = 900
SIGHTS = [(width, theme) for width in (1440, 360) for theme in ("light", "dark")]
#: What htmx logs when a page is left while a part of it is being fetched.
_LEAVING = ("htmx:afterRequest", "htmx:sendError", "htmx:sendAbort")
# Several stacks and a test run may share two cores.
expect.set_options(timeout=15_000)


@pytest.fixture(scope="session")
def browser_type_launch_args() -> dict[str, Any]:
    """The system's Chromium, without which the pages are not tested."""
    path = chromium()
    if path is None:
        hint = f"{MISSING}: the pages were NOT tested in a browser"
        if os.environ.get("CI"):
            pytest.fail(hint)
        pytest.skip(hint)
    return {"executable_path": path, "args": list(FLAGS)}


#: Cookies of the demo tenant's owner, by console.
_owners: dict[str, Any] = {}


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
        """As the demo tenant's owner: in the session of whoever did so first."""
        if self.base in _owners:
            self.page.context.add_cookies(_owners[self.base])
            self.go("/t/demo/")
        else:
            self.sign_in_as("owner")
        expect(self.page).to_have_url(self.base + "/t/demo/")
        _owners.setdefault(self.base, self.page.context.cookies())

    def sign_in_as(self, role: str) -> None:
        """As the demo tenant's `owner`, or as an `operator`."""
        prefix = "operator_" if role == "operator" else ""
        self.go("/accounts/login/")
        self.page.get_by_label("Email").fill(self.stack.info[prefix + "email"])
        self.page.get_by_label("Password", exact=True).fill(self.stack.info[prefix + "password"])
        self.page.get_by_role("button", name="Sign in").click()
        expect(self.page).not_to_have_url(re.compile("/accounts/login/"))

    def picture(self, name: str) -> None:
        """Keep what is seen, and check that nothing is wider than the screen."""
        PICTURES.mkdir(exist_ok=True)
        width = self.page.viewport_size["width"] if self.page.viewport_size else 0
        theme = (
            "dark" if self.page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches") else "light"
        )
        # JPEG: half of a picture's time was the packing of PNGs.
        picture = PICTURES / f"{name}-{width}-{theme}.jpg"
        self.page.screenshot(path=picture, full_page=True, type="jpeg", quality=80)
        assert self.page.evaluate("document.documentElement.scrollWidth") <= width, name


@contextmanager
def visiting(browser: Browser, stack: Stack, width: int, theme: str) -> Iterator[Visitor]:
    """A visitor with a browser profile of their own."""
    context = browser.new_context(
        viewport={"width": width, "height": HEIGHT},
        color_scheme="dark" if theme == "dark" else "light",
        timezone_id="Europe/Berlin",
    )
    visitor = Visitor(context.new_page(), stack)
    try:
        yield visitor
    finally:
        context.close()


def _visitor(browser: Browser, stack: Stack, width: int, theme: str) -> Iterator[Visitor]:
    with visiting(browser, stack, width, theme) as visitor:
        yield visitor
    assert [error for error in visitor.errors if not error.startswith(_LEAVING)] == []


@pytest.fixture
def visitor(browser: Browser, stack: Stack) -> Iterator[Visitor]:
    """A wide, light screen."""
    yield from _visitor(browser, stack, *SIGHTS[0])
