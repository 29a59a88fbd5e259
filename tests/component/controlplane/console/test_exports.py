"""Exports on the pages: asked for once, followed, fetched, scheduled by admins, and nobody else's."""

from __future__ import annotations

import hashlib
import re
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from billing.exports import running
from billing.exports.models import Export, ExportSchedule
from controlplane.events.models import AuditEvent
from controlplane.tenants.models import User
from tests.component.billing.months import close, used
from tests.component.controlplane.console.conftest import Signed, sign_in

pytestmark = pytest.mark.django_db
OCTOBER = date(2026, 10, 1)
FORM = {"dataset": "USAGE", "format": "CSV", "from": "2026-10-01", "to": "2026-10-31", "reason": "books"}


@pytest.fixture
def folder(tmp_path: Path, settings: Any) -> Path:
    place = tmp_path / "exports"
    settings.BILLING_EXPORTS = {**settings.BILLING_EXPORTS, "url": place.as_uri()}
    return place


def _page(who: Signed, path: str, status: int = 200) -> str:
    answer = who.browser.get(who.base + path)
    assert answer.status_code == status, path
    return answer.content.decode()


def _token(page: str) -> str:
    found = re.search(r'name="token" value="(\w+)"', page)
    assert found is not None
    return found[1]


def _ask(who: Signed, **changes: str) -> Any:
    form = FORM | {"token": _token(_page(who, "/exports/"))} | changes
    return who.browser.post(who.base + "/exports/", form)


def test_asked_for_once_followed_and_fetched(owner: Signed, folder: Path) -> None:
    tenant = owner.membership.tenant
    used(tenant, (OCTOBER, "job_runs", "HOME_ASYNC", 5))
    close(tenant, OCTOBER)
    assert "No exports yet." in _page(owner, "/exports/")
    token = _token(_page(owner, "/exports/"))
    asked = _ask(owner, token=token)
    again = _ask(owner, token=token)  # a second click
    export = Export.objects.get()
    path = f"/exports/{export.public_id}/"
    assert (asked["Location"], again["Location"]) == (owner.base + path, owner.base + "/exports/")
    assert (export.since, export.until, export.format) == (OCTOBER, date(2026, 11, 1), "CSV")
    waiting = _page(owner, path)
    assert 'hx-trigger="every 2s"' in waiting
    assert "Waiting" in waiting
    early = owner.browser.get(owner.base + path + "files/manifest.json", follow=True).content.decode()
    assert "its files are there once it is DONE" in early
    assert running.run(export.id)
    live = _page(owner, path + "live")
    assert "hx-trigger" not in live
    export.refresh_from_db()
    for file in export.files:
        assert file["name"] in live
        answer = owner.browser.get(f"{owner.base}{path}files/{file['name']}")
        content = b"".join(answer.streaming_content)  # type: ignore[attr-defined]
        assert hashlib.sha256(content).hexdigest() == file["sha256"]
    _page(owner, path + "files/other.csv", 404)
    listed = _page(owner, "/exports/?state=DONE")
    assert path in listed
    assert "No export is in that state" in _page(owner, "/exports/?state=FAILED")
    event = AuditEvent.objects.get(action="export.request")
    assert (event.tenant_id, event.reason) == (tenant.id, "books")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"from": "soon", "to": "2026-13-01"}, "a day: YYYY-MM-DD"),
        ({"to": "9999-12-31"}, "a day: YYYY-MM-DD"),
        ({"from": "2026-10-31", "to": "2026-10-01"}, "lies behind"),
        ({"dataset": "FOCUS", "to": "2026-10-30"}, "whole months"),
        ({"dataset": "ALL"}, "one of USAGE"),
        ({"format": "XML"}, "one of CSV"),
        ({"from": "2999-01-01", "to": "2999-01-02"}, "lies ahead"),
    ],
)
def test_what_cannot_be_exported_is_said_at_its_field(
    owner: Signed, folder: Path, changes: dict[str, str], words: str
) -> None:
    refused = _ask(owner, **changes)
    assert (refused.status_code, words in refused.content.decode()) == (422, True)
    assert not Export.objects.exists()
    token = _token(refused.content.decode())
    assert _ask(owner, token=token).status_code == 302  # the form may be sent again


def test_without_a_place_the_page_says_who_can_help(owner: Signed, settings: Any) -> None:
    settings.BILLING_EXPORTS = {**settings.BILLING_EXPORTS, "url": ""}
    page = _page(owner, "/exports/")
    assert "CONTROL_EXPORTS" in page
    assert 'name="dataset"' not in page


def test_readers_export_and_admins_schedule(owner: Signed, folder: Path) -> None:
    viewer = sign_in("viewer")
    assert _ask(viewer).status_code == 302
    form = {"dataset": "FOCUS", "cadence": "MONTHLY", "format": "PARQUET"}
    assert viewer.browser.post(viewer.base + "/export-schedules", form).status_code == 403
    _page(viewer, "/export-schedules/FOCUS/remove", 403)
    assert "Owners and admins set it" in _page(viewer, "/exports/")
    said = owner.browser.post(owner.base + "/export-schedules", form, follow=True).content.decode()
    assert "FOCUS 1.2 is exported every month" in said
    row = ExportSchedule.objects.get()
    assert (row.tenant_id, row.dataset, row.cadence, row.format) == (
        owner.membership.tenant.id, "FOCUS", "MONTHLY", "PARQUET",
    )  # fmt: skip
    assert owner.browser.post(owner.base + "/export-schedules", {"dataset": "X"}).status_code == 404
    assert "stays until it expires" in _page(owner, "/export-schedules/FOCUS/remove")
    owner.browser.post(owner.base + "/export-schedules/FOCUS/remove")
    assert not ExportSchedule.objects.exists()
    assert owner.browser.get(owner.base + "/export-schedules/FOCUS/remove").status_code == 302


def test_exports_of_others_are_not_there(owner: Signed, folder: Path) -> None:
    _ask(owner)
    export = Export.objects.get()
    assert running.run(export.id)
    stranger = sign_in()
    path = f"/exports/{export.public_id}/"
    for each in (path, path + "live", path + "files/manifest.json"):
        _page(stranger, each, 404)
    assert export.public_id not in _page(stranger, "/exports/")
    _page(owner, "/exports/?cursor=nonsense", 404)


# --- operators -----------------------------------------------------------------------------
@pytest.fixture
def operator(control: None) -> Client:
    client = Client()
    client.force_login(User.objects.create_user("op@example.com", "operator password", is_staff=True))
    return client


def test_operators_export_everybodys_data_or_a_tenants(
    operator: Client, owner: Signed, folder: Path, tmp_path: Path
) -> None:
    tenant = owner.membership.tenant
    used(tenant, (OCTOBER, "job_runs", "HOME_ASYNC", 5))
    close(tenant, OCTOBER)
    url = reverse("operators:exports")

    def ask(**changes: str) -> Any:
        return operator.post(url, FORM | {"token": _token(operator.get(url).content.decode())} | changes)

    for changes, words in (
        ({"tenant": "nobody"}, "no tenant has this slug"),
        ({"reason": ""}, "say why"),
        ({"destination": "ftp://x"}, "destination"),
        ({"from": "x"}, "a day: YYYY-MM-DD"),
    ):
        refused = ask(**changes)
        assert (refused.status_code, words in refused.content.decode()) == (422, True), words
    elsewhere = (tmp_path / "elsewhere").as_uri()
    assert ask(tenant=tenant.slug, destination=elsewhere).status_code == 302
    assert ask().status_code == 302
    everybody, one = Export.objects.order_by("-id")
    assert (everybody.about_tenant_id, everybody.tenant_id) == (None, None)
    assert (one.about_tenant_id, one.tenant_id, one.place) == (tenant.id, None, elsewhere)
    assert running.run(one.id)
    page = operator.get(url + f"?tenant={tenant.slug}").content.decode()
    address = reverse("operators:export-file", args=[one.public_id, "manifest.json"])
    assert address in page
    assert everybody.public_id not in page
    assert b"rows" in b"".join(operator.get(address).streaming_content)  # type: ignore[attr-defined]
    assert AuditEvent.objects.filter(action="operator.read", tenant_id=tenant.id).exists()
    assert operator.get(address.replace("manifest", "other")).status_code == 404
    assert "FOCUS 1.2" in operator.get(url).content.decode()


def test_operators_schedule_with_a_reason(operator: Client, folder: Path) -> None:
    url = reverse("operators:export-schedule")
    form = {"verb": "set", "dataset": "FOCUS", "cadence": "DAILY", "format": "CSV", "reason": "FinOps"}
    operator.post(url, {**form, "reason": ""})
    assert not ExportSchedule.objects.exists()
    operator.post(url, form)
    assert ExportSchedule.objects.get().tenant_id is None
    assert operator.post(url, {**form, "cadence": "x"}).status_code == 404
    operator.post(url, {"verb": "end", "dataset": "FOCUS", "reason": "no more"})
    assert not ExportSchedule.objects.exists()
    log = AuditEvent.objects.filter(action__startswith="export_schedule.").order_by("id")
    assert [(e.action, e.reason) for e in log] == [
        ("export_schedule.set", "FinOps"), ("export_schedule.remove", "no more"),
    ]  # fmt: skip
