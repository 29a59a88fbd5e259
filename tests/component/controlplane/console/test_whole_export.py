"""The page where owners export everything: theirs alone."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.custody import exporting
from controlplane.custody.contents import Page
from controlplane.custody.models import TenantExport
from tests.component.controlplane.console.conftest import Signed, sign_in

pytestmark = pytest.mark.django_db


def test_asked_for_and_fetched(
    owner: Signed, monkeypatch: pytest.MonkeyPatch, settings: Any, tmp_path: Any
) -> None:
    settings.BILLING_EXPORTS = {**settings.BILLING_EXPORTS, "url": f"file://{tmp_path}"}
    monkeypatch.setattr(
        exporting, "KINDS", (("tenant", lambda t, c: Page(rows=[{"id": str(t)}], cursor="")),)
    )
    here = owner.base + "/settings/export"
    assert "clockhouse tenant-export create" in owner.browser.get(here).content.decode()
    assert owner.browser.post(here).status_code == 302
    export = TenantExport.objects.get()
    assert "REQUESTED" in owner.browser.get(here).content.decode()
    early = owner.browser.get(f"{here}/{export.public_id}/manifest.json", follow=True)
    assert "its files are there once it is DONE" in early.content.decode()
    assert exporting.run(export.id)
    assert f"{export.public_id}/manifest.json" in owner.browser.get(here).content.decode()
    got = owner.browser.get(f"{here}/{export.public_id}/manifest.json")
    assert b"clockhouse-tenant-export/1" in b"".join(got.streaming_content)
    assert owner.browser.get(f"{here}/{export.public_id}/../../x").status_code == 404
    other = sign_in("owner")
    assert (
        other.browser.get(f"{other.base}/settings/export/{export.public_id}/manifest.json").status_code == 404
    )
    assert export.public_id not in other.browser.get(other.base + "/settings/export").content.decode()


@pytest.mark.parametrize("role", ["admin", "developer", "viewer"])
def test_owners_only(owner: Signed, role: str) -> None:
    person = sign_in(role)
    assert person.browser.get(person.base + "/settings/export").status_code == 403
    assert person.browser.post(person.base + "/settings/export").status_code == 403
    assert not TenantExport.objects.exists()
