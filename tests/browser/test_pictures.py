"""Every page in both widths and themes: nothing wider than the screen, nothing that keeps people out.

The pictures are left in `pictures/`; `pictures/index.html` shows them side by side.
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterator
from dataclasses import replace

import pytest
from django.contrib import admin
from playwright.sync_api import Browser, expect

from tests.api import Api
from tests.browser.accessibility import GRAVE, findings
from tests.browser.conftest import PICTURES, SIGHTS, Visitor, visiting
from tests.browser.pages import PAGES, PARTS, Page, addresses, known_pages
from tests.inhabited import Tenant, inhabit
from tests.stack import Stack

pytestmark = [pytest.mark.stack, pytest.mark.slow, pytest.mark.timeout(900)]

#: Where axe looks: both widths and both themes, once each.
_EXAMINED = (SIGHTS[0], SIGHTS[-1])
_ROLES = ("nobody", "owner", "operator")


def test_every_address_is_a_page_or_a_part() -> None:
    named = set(addresses())
    assert named - PAGES.keys() - PARTS == set(), "add a line to tests/browser/pages.py"
    assert (PAGES.keys() | PARTS) - named == set(), "no longer there"


@pytest.fixture(scope="module")
def things(stack: Stack) -> dict[str, str]:
    """The demo tenant with one of everything."""
    info = stack.info
    demo = Tenant(
        tenant_id=info["tenant_id"], cell="", api=Api(info["api_url"], info["api_key"]), key=info["api_key"]
    )
    return {**inhabit(stack, demo).things, "name": next(iter(info["cells"]))}


@pytest.fixture(scope="module", autouse=True)
def index() -> Iterator[None]:
    """A page to look at all pictures."""
    yield
    if PICTURES.is_dir():
        (PICTURES / "index.html").write_text(_index())


@pytest.mark.parametrize(("width", "theme"), SIGHTS)
def test_every_page(browser: Browser, stack: Stack, things: dict[str, str], width: int, theme: str) -> None:
    grave: list[str] = []
    found: dict[str, list[str]] = {}
    for role in _ROLES:
        with visiting(browser, stack, width, theme) as visitor:
            if role != "nobody":
                visitor.sign_in_as(role)
            for page in _pages(role, things):
                faults = _look_at(visitor, page)
                if (width, theme) in _EXAMINED:
                    said = findings(visitor.page)
                    found[page.name] = [str(finding) for finding in said]
                    faults += [str(finding) for finding in said if finding.impact in GRAVE]
                grave += [f"{page.name}: {fault}" for fault in faults]
    if found:
        (PICTURES / f"findings-{width}-{theme}.json").write_text(json.dumps(found, indent=1))
    assert not grave, "\n".join(grave)


def _pages(role: str, things: dict[str, str]) -> list[Page]:
    pages = [replace(p, path=p.path.format(**things)) for p in known_pages() if p.role == role]
    if role == "operator":
        pages.append(Page(name="admin", role="operator", path="/admin/"))
        for model in admin.site._registry:
            label, name = model._meta.app_label, model._meta.model_name or ""
            pages.append(Page(name=f"admin-{label}-{name}", role="operator", path=f"/admin/{label}/{name}/"))
    return pages


def _look_at(visitor: Visitor, page: Page) -> list[str]:
    """Open a page and keep its picture; its faults."""
    faults = []
    status = visitor.go(page.path)
    if status != page.status:
        faults.append(f"answered {status}")
    if page.name == "reference":
        expect(visitor.page.locator(".opblock-tag").first).to_be_attached()
    try:
        visitor.picture(page.name)
    except AssertionError:
        faults.append("is wider than the screen")
    return faults


def _index() -> str:
    names = sorted({path.stem.rsplit("-", 2)[0] for path in PICTURES.glob("*-*-*.png")})
    rows = []
    for name in names:
        pictures = "".join(
            f'<a href="{name}-{width}-{theme}.png"><img loading="lazy" alt="{name}, {width} px, {theme}"'
            f' src="{name}-{width}-{theme}.png" style="height:420px"></a>'
            for width, theme in SIGHTS
            if (PICTURES / f"{name}-{width}-{theme}.png").exists()
        )
        rows.append(f"<h2 id='{html.escape(name)}'>{html.escape(name)}</h2><p>{pictures}</p>")
    links = " ".join(f"<a href='#{name}'>{name}</a>" for name in names)
    return (
        "<!doctype html><html lang='en'><meta charset='utf-8'><title>Clockhouse in pictures</title>"
        "<style>body{font:15px system-ui;margin:2rem}img{border:1px solid #999;margin:4px;"
        "object-fit:cover;object-position:top;max-width:46vw}</style>"
        f"<h1>Clockhouse in pictures</h1><p>{links}</p>{''.join(rows)}</html>\n"
    )
