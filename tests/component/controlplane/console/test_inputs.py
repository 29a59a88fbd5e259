"""What is no text is refused before any database is asked."""

from __future__ import annotations

import pytest
from django.test import Client

from controlplane.events.models import AuditEvent
from tests.component.controlplane.console.conftest import Signed
from tests.component.controlplane.contents import contents

pytestmark = pytest.mark.django_db


def test_a_nul_is_answered_with_400_wherever_it_stands(owner: Signed) -> None:
    before = contents()
    browser, base = owner.browser, owner.base
    for path in (
        "/t/a%00b/", f"{base}/jobs/job%00/", f"{base}/settings/audit?actor=%00", f"{base}/runs/?%00=1",
        "/admin/pages/tenants/?q=%00", "/accounts/login/?next=%00",
    ):  # fmt: skip
        answer = browser.get(path)
        assert answer.status_code == 400, path
        assert b"cannot be read" in answer.content
        assert answer.has_header("Content-Security-Policy") is not path.startswith("/admin/")
    for path, form in (
        ("/settings/", {"display_name": "a\0b", "timezone": "UTC", "theme": "dark"}),
        ("/settings/members/", {"email": "x\0@example.com", "role": "admin"}),
        ("/settings/work", {"verb": "pause", "reason": "\0"}),
        ("/settings/work", {"ver\0b": "pause"}),
    ):
        assert browser.post(base + path, form).status_code == 400, path
        urlencoded = "application/x-www-form-urlencoded"
        raw = "&".join(f"{k}={v}" for k, v in form.items()).replace("\0", "%00")
        assert browser.post(base + path, raw, content_type=urlencoded).status_code == 400, path
    assert Client().post("/accounts/login/", {"login": "\0", "password": "p"}).status_code == 400
    assert contents() == before


def test_a_workspaces_name_is_one_line(owner: Signed) -> None:
    form = {"display_name": "two\nlines", "timezone": "UTC", "theme": "dark"}
    answer = owner.browser.post(f"{owner.base}/settings/", form)
    assert answer.status_code == 422
    assert b"no control characters" in answer.content
    assert not AuditEvent.objects.filter(action="workspace.update").exists()
