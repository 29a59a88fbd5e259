"""Who sees what, on whose behalf the cell is asked, and what every page carries."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client
from django.urls import get_resolver

from tests.component.controlplane.console.cell import JOB_ID, RUN_ID, Cell
from tests.component.controlplane.console.conftest import Signed, sign_in
from tests.component.controlplane.factories import UserFactory

pytestmark = pytest.mark.django_db

READ = (
    "/",
    "/live",
    "/jobs/",
    f"/jobs/{JOB_ID}/",
    f"/jobs/{JOB_ID}/live",
    f"/jobs/{JOB_ID}/why?at=2026-11-30T06:33:26Z",
    "/herd?target=tgt_echo&priority=LOW",
    "/herd/part",
    "/events?type=job",
    "/events/part",
    "/activity",
    "/activity/live",
    "/operations/",
    "/operations/op_1/",
    "/operations/op_1/live",
    "/runs/",
    f"/runs/{RUN_ID}/",
    f"/runs/{RUN_ID}/live",
    "/dlq/",
    "/redrives/",
    "/redrives/op_2/",
    "/redrives/op_2/live",
    "/targets/",
    "/targets/tgt_echo/",
    "/targets/tgt_echo/live",
    "/usage",
)
WRITE = (
    "/jobs/new",
    f"/jobs/new?from={JOB_ID}",
    f"/jobs/{JOB_ID}/edit",
    f"/jobs/{JOB_ID}/pause",
    f"/runs/{RUN_ID}/again",
    "/selections/sel_1/",
    "/targets/new",
    "/targets/tgt_echo/disable",
    "/targets/tgt_echo/edit",
)


def _patterns() -> set[str]:
    found = set()
    for resolver in get_resolver().url_patterns:
        if getattr(resolver, "app_name", None) == "console":
            found |= {str(pattern.pattern) for pattern in resolver.url_patterns}  # type: ignore[union-attr]
    return {pattern for pattern in found if pattern.startswith("t/")}


def test_every_page_belongs_to_a_member_only(cell: Cell, owner: Signed) -> None:
    stranger = sign_in()
    nobody = Client()
    patterns = _patterns()
    assert len(patterns) > 10
    for pattern in patterns:
        path = "/" + re.sub(
            r"<\w+:(\w+)>", lambda m: owner.membership.tenant.slug if m[1] == "slug" else "x", pattern
        )
        for method in ("get", "post"):
            assert getattr(stranger.browser, method)(path).status_code == 404, path
            answer = getattr(nobody, method)(path)
            assert (answer.status_code, answer["Location"].split("?")[0]) == (302, "/accounts/login/"), path
    assert cell.calls == []


def test_readers_read_and_cannot_write(cell: Cell) -> None:
    viewer = sign_in("viewer")
    for path in READ:
        assert viewer.browser.get(viewer.base + path).status_code == 200, path
    for path in WRITE:
        answer = viewer.browser.get(viewer.base + path)
        assert answer.status_code in (302, 403), path
    assert viewer.browser.post(f"{viewer.base}/targets/tgt_echo/approve").status_code == 403
    page = viewer.browser.get(f"{viewer.base}/jobs/{JOB_ID}/").content.decode()
    assert "Cancel job" not in page
    assert "New job" not in viewer.browser.get(f"{viewer.base}/jobs/").content.decode()
    assert [call.method for call in cell.calls if call.method != "GET"] == ["POST"] * len(
        cell.asked("POST", "/v1/schedules:preview")
    )


def test_the_cell_is_asked_as_the_member(cell: Cell) -> None:
    developer = sign_in("developer", may_see_payloads=True)
    developer.browser.get(developer.base + "/jobs/")
    caller = cell.calls[0].caller
    assert caller.tenant_id == developer.membership.tenant.public_id
    assert caller.actor == f"user:{developer.membership.user.id}"
    assert set(caller.scopes) == {
        "jobs:read",
        "jobs:write",
        "jobs:trigger",
        "workflows:read",
        "workflows:write",
        "usage:read",
        "payloads:read",
    }
    assert caller.epoch == developer.membership.tenant.placement.epoch


def test_nothing_is_done_without_a_token(owner: Signed, cell: Cell) -> None:
    browser = Client(enforce_csrf_checks=True)
    browser.force_login(owner.membership.user, backend="django.contrib.auth.backends.ModelBackend")
    for path in (
        "/jobs/new",
        "/jobs/preview",
        f"/jobs/{JOB_ID}/cancel",
        f"/runs/{RUN_ID}/cancel",
        "/targets/new",
        "/targets/tgt_echo/approve",
    ):
        answer = browser.post(owner.base + path, {})
        assert answer.status_code == 403, path
        assert b"Please try again" in answer.content
    assert cell.calls == []


def test_pages_carry_no_script_or_style_of_their_own(owner: Signed) -> None:
    anonymous = Client().get("/accounts/login/")
    pages = [owner.browser.get(owner.base + path) for path in (*READ, *WRITE)]
    for answer in (*pages, anonymous, owner.browser.get("/t/nowhere/"), owner.browser.get("/?choose")):
        policy = answer["Content-Security-Policy"]
        assert "script-src 'self'" in policy
        assert "unsafe" not in policy
        assert answer["X-Frame-Options"] == "DENY"
        assert answer["X-Content-Type-Options"] == "nosniff"
        assert answer["Cache-Control"] == "no-store" or "no-cache" in answer["Cache-Control"]
        text = answer.content.decode()
        assert not re.search(r"<script(?![^>]*\bsrc=)|\son\w+=|\sstyle=|<style|javascript:", text), text[:400]


def test_what_people_and_targets_wrote_stays_text(owner: Signed) -> None:
    page = owner.browser.get(f"{owner.base}/runs/{RUN_ID}/").content.decode()
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "Digest &lt;b&gt;" in owner.browser.get(f"{owner.base}/jobs/").content.decode()


@pytest.mark.parametrize("path", READ)
def test_pages_have_landmarks_and_one_heading(owner: Signed, path: str) -> None:
    if path.endswith(("live", "part")):
        return
    text = owner.browser.get(owner.base + path).content.decode()
    assert len(re.findall(r"<h1\b", text)) == 1
    for landmark in ("<main", "<nav", "<header", 'lang="en"', "Skip to content"):
        assert landmark in text


def test_a_single_workspace_is_entered_and_several_are_listed(owner: Signed) -> None:
    answer = owner.browser.get("/")
    assert (answer.status_code, answer["Location"]) == (302, owner.base + "/")
    loner: Any = UserFactory()
    browser = Client()
    browser.force_login(loner, backend="django.contrib.auth.backends.ModelBackend")
    assert b"nobody has added you" in browser.get("/").content


def test_the_viewers_zone_is_used_and_nonsense_is_not(owner: Signed) -> None:
    owner.browser.cookies["zone"] = "Asia/Tokyo"
    assert b"15:33:26" in owner.browser.get(f"{owner.base}/runs/{RUN_ID}/").content
    for odd in ("../../etc/passwd", "Nowhere/Else", "x" * 300, "%00"):
        owner.browser.cookies["zone"] = odd
        assert b"06:33:26" in owner.browser.get(f"{owner.base}/runs/{RUN_ID}/").content
