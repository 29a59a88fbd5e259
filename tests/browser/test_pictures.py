"""Every page in both widths and themes: nothing wider than the screen, nothing that keeps people out.

The pictures are left in `pictures/`; `pictures/index.html` shows them side by side.
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import groupby
from typing import Any

import pytest
from django.contrib import admin
from playwright.sync_api import Route, expect, sync_playwright

from tests.api import Api
from tests.browser.accessibility import GRAVE, findings
from tests.browser.conftest import HEIGHT, PICTURES, SIGHTS, Visitor, visiting
from tests.browser.pages import PAGES, PARTS, Page, addresses, known_pages
from tests.inhabited import Tenant, inhabit
from tests.stack import Stack

pytestmark = [pytest.mark.stack, pytest.mark.slow, pytest.mark.timeout(900)]

#: In the order in which a page is looked at: it is opened wide and light, and turned around from there.
_SIGHTS = [(1440, "light"), (360, "light"), (360, "dark"), (1440, "dark")]
#: Where axe looks: both widths and both themes, once each.
_EXAMINED = (SIGHTS[0], SIGHTS[-1])
#: As many as have a core.
_PEOPLE = 2
#: The admin's own way to another theme; whether it is dark then.
_SWITCH = """async theme => {
  Alpine.$data(document.documentElement).switchTheme(theme);
  await Alpine.nextTick();
  return document.documentElement.classList.contains('dark');
}"""
_ROLES = ("nobody", "owner", "operator")


def test_every_address_is_a_page_or_a_part() -> None:
    named = set(addresses())
    assert named - PAGES.keys() - PARTS == set(), "add a line to tests/browser/pages.py"
    assert (PAGES.keys() | PARTS) - named == set(), "no longer there"


@pytest.fixture(scope="module")
def things(stack: Stack) -> dict[str, str]:
    """The demo tenant with one of everything."""
    info = stack.info
    cell = next(iter(info["cells"]))
    demo = Tenant(
        tenant_id=info["tenant_id"], cell=cell, api=Api(info["api_url"], info["api_key"]), key=info["api_key"]
    )
    return {**inhabit(stack, demo).things, "name": cell}


@pytest.fixture(scope="module", autouse=True)
def index() -> Iterator[None]:
    """A page to look at all pictures."""
    yield
    if PICTURES.is_dir():
        (PICTURES / "index.html").write_text(_index())


def test_every_page(browser_type_launch_args: dict[str, Any], stack: Stack, things: dict[str, str]) -> None:
    """Two people go through the pages, each in a Chromium of their own: one of them waits mostly."""
    shares = [[(role, _pages(role, things)[n::_PEOPLE]) for role in _ROLES] for n in range(_PEOPLE)]
    found: dict[str, dict[str, list[str]]] = {_named(sight): {} for sight in _EXAMINED}
    with ThreadPoolExecutor(_PEOPLE) as people:
        walks = [people.submit(_walk, browser_type_launch_args, stack, share, found) for share in shares]
        faults = [fault for walk in walks for fault in walk.result()]
    for sight, findings_of in found.items():
        text = json.dumps(dict(sorted(findings_of.items())), indent=1)
        (PICTURES / f"findings-{sight}.json").write_text(text)
    assert not faults, "\n".join(faults)


def _walk(
    launch: dict[str, Any],
    stack: Stack,
    share: list[tuple[str, list[Page]]],
    found: dict[str, dict[str, list[str]]],
) -> list[str]:
    """Look at some pages of each role; what is wrong with them. Each has its own entries in `found`."""
    faults: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(**launch)
        for role, pages in share:
            with visiting(browser, stack, *SIGHTS[0]) as visitor:
                if role != "nobody":
                    visitor.sign_in_as(role)
                visitor.page.route("**/admin/pages/**", _held_still)
                for page in pages:
                    faults += [f"{page.name}: {fault}" for fault in _look_at(visitor, page, found)]
        browser.close()
    return faults


def _named(sight: tuple[int, str]) -> str:
    return f"{sight[0]}-{sight[1]}"


def _pages(role: str, things: dict[str, str]) -> list[Page]:
    pages = [replace(p, path=p.path.format(**things)) for p in known_pages() if p.role == role]
    if role == "operator":
        pages.append(Page(name="admin", role="operator", path="/admin/"))
        for model in admin.site._registry:
            label, name = model._meta.app_label, model._meta.model_name or ""
            pages.append(Page(name=f"admin-{label}-{name}", role="operator", path=f"/admin/{label}/{name}/"))
    return pages


def _look_at(visitor: Visitor, page: Page, found: dict[str, dict[str, list[str]]]) -> list[str]:
    """Open a page, and keep its picture in every sight; its faults."""
    status = visitor.go(page.path)
    faults = [f"answered {status}"] if status != page.status else []
    if page.name == "reference":
        expect(visitor.page.locator(".opblock-tag").first).to_be_attached(timeout=90_000)
    for theme, sights in groupby(_SIGHTS, key=lambda sight: sight[1]):
        # Our own pages follow the system's theme by themselves; the admin's have a switch.
        visitor.page.emulate_media(color_scheme="dark" if theme == "dark" else "light")
        if page.role == "operator" and visitor.page.evaluate(_SWITCH, theme) != (theme == "dark"):
            faults.append(f"does not turn {theme}")
        for width, _ in sights:
            visitor.page.set_viewport_size({"width": width, "height": HEIGHT})
            try:
                visitor.picture(page.name)
            except AssertionError:
                faults.append(f"is wider than the screen at {width}")
            if (width, theme) in _EXAMINED:
                said = findings(visitor.page)
                found[_named((width, theme))][page.name] = [str(finding) for finding in said]
                faults += [str(finding) for finding in said if finding.impact in GRAVE]
    return faults


def _held_still(route: Route) -> None:
    """Pages about work that goes on load themselves anew; one that is looked at does not."""
    answer = route.fetch(max_redirects=0)
    gone = ("refresh", "content-encoding", "content-length")
    route.fulfill(response=answer, headers={n: v for n, v in answer.headers.items() if n not in gone})


def _index() -> str:
    names = sorted({path.stem.rsplit("-", 2)[0] for path in PICTURES.glob("*-*-*.jpg")})
    rows = []
    for name in names:
        pictures = "".join(
            f'<a href="{name}-{width}-{theme}.jpg"><img loading="lazy" alt="{name}, {width} px, {theme}"'
            f' src="{name}-{width}-{theme}.jpg" style="height:420px"></a>'
            for width, theme in SIGHTS
            if (PICTURES / f"{name}-{width}-{theme}.jpg").exists()
        )
        rows.append(f"<h2 id='{html.escape(name)}'>{html.escape(name)}</h2><p>{pictures}</p>")
    links = " ".join(f"<a href='#{name}'>{name}</a>" for name in names)
    return (
        "<!doctype html><html lang='en'><meta charset='utf-8'><title>Clockhouse in pictures</title>"
        "<style>body{font:15px system-ui;margin:2rem}img{border:1px solid #999;margin:4px;"
        "object-fit:cover;object-position:top;max-width:46vw}</style>"
        f"<h1>Clockhouse in pictures</h1><p>{links}</p>{''.join(rows)}</html>\n"
    )
