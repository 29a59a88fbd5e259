"""Exports over the API: asked for once, followed, fetched, and nobody else's."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from billing.exports import running
from billing.exports.models import Export, ExportSchedule
from controlplane.events.models import AuditEvent
from tests.component.billing.exports.conftest import used_in_october
from tests.component.controlplane.contents import contents
from tests.component.controlplane.signed import operator, tenant_admin

pytestmark = pytest.mark.django_db
BODY = {"dataset": "USAGE", "from": "2026-10-01", "to": "2026-10-31"}


def _done(export_id: str) -> None:
    export = next(e for e in Export.objects.all() if e.public_id == export_id)
    assert running.run(export.id), Export.objects.get(pk=export.pk).error


def test_asked_for_followed_and_fetched(tenant: Any, folder: Path) -> None:
    ours = tenant_admin(tenant, "usage:read")
    made = ours.post("/v1/exports", BODY, headers={"Idempotency-Key": "one"})
    again = ours.post("/v1/exports", BODY, headers={"Idempotency-Key": "one"})
    assert (made.status, again.status, again.json) == (201, 200, made.json)
    path = made.headers["Location"]
    assert (made.json["state"], made.json["format"], made.json["files"]) == ("REQUESTED", "CSV", [])
    early = ours.get(f"{path}/files/manifest.json")
    assert (early.status, early.json["code"]) == (409, "CONFLICT")
    _done(made.json["export_id"])
    shown = ours.get(path).json
    assert (shown["state"], shown["rows_done"], shown["from"], shown["to"]) == (
        "DONE", 3, "2026-10-01", "2026-10-31",
    )  # fmt: skip
    assert "destination" not in shown
    for file in shown["files"]:
        content = ours.download(f"{path}/files/{file['name']}")
        assert hashlib.sha256(content).hexdigest() == file["sha256"]
    assert ours.get("/v1/exports?state=DONE").json["items"] == [shown]
    assert ours.get("/v1/exports?state=FAILED").json["items"] == []
    assert ours.get(f"{path}/files/another.csv").status == 404


def test_other_tenants_exports_are_not_there(tenant: Any, folder: Path) -> None:
    made = tenant_admin(tenant).post("/v1/exports", BODY).json
    _done(made["export_id"])
    other = tenant_admin(used_in_october())
    before = contents()
    for path in ("", "/files/manifest.json"):
        answer = other.get(f"/v1/exports/{made['export_id']}{path}")
        assert (answer.status, answer.json["code"]) == (404, "NOT_FOUND")
        assert operator().get(f"/v1/admin/exports/{made['export_id']}{path}").status == 404
    assert other.get("/v1/exports").json["items"] == []
    assert contents() == before


def test_every_fault_is_told_at_once(tenant: Any, folder: Path) -> None:
    ours = tenant_admin(tenant)

    def faults(body: dict[str, Any]) -> list[str]:
        answer = ours.post("/v1/exports", body)
        assert answer.status == 422, answer
        return [fault["pointer"] for fault in answer.json["errors"]]

    assert faults({"dataset": "ODD", "format": "XML", "from": "x", "color": "red"}) == [
        "/dataset", "/format", "/from", "/to", "/color",
    ]  # fmt: skip
    assert faults({**BODY, "dataset": "FOCUS", "from": "2026-10-02", "to": "2026-10-30"}) == ["/from", "/to"]
    assert faults({**BODY, "from": "2026-11-01"}) == ["/from"]
    assert faults({**BODY, "from": "2020-10-01"}) == ["/from"]
    assert faults({**BODY, "from": "2099-01-01", "to": "2099-01-02"}) == ["/from"]
    assert not Export.objects.exists()


def test_only_so_many_at_once(tenant: Any, folder: Path) -> None:
    ours = tenant_admin(tenant)
    for _ in range(20):
        assert ours.post("/v1/exports", BODY).status == 201
    answer = ours.post("/v1/exports", BODY)
    assert (answer.status, "20 exports are under way" in answer.json["detail"]) == (409, True)
    assert tenant_admin(used_in_october()).post("/v1/exports", BODY).status == 201


def test_expired_and_without_a_place(tenant: Any, folder: Path, settings: Any) -> None:
    ours = tenant_admin(tenant)
    made = ours.post("/v1/exports", BODY).json
    _done(made["export_id"])
    Export.objects.update(state="EXPIRED")
    gone = ours.get(f"/v1/exports/{made['export_id']}/files/manifest.json")
    assert (gone.status, "expired" in gone.json["detail"]) == (404, True)
    settings.BILLING_EXPORTS = {**settings.BILLING_EXPORTS, "url": ""}
    answer = ours.post("/v1/exports", BODY)
    assert (answer.status, "CONTROL_EXPORTS" in answer.json["detail"]) == (409, True)


def test_operators_export_everybody_and_one(tenant: Any, folder: Path, tmp_path: Path) -> None:
    used_in_october()
    elsewhere = (tmp_path / "elsewhere").as_uri()
    made = operator().post("/v1/admin/exports", {**BODY, "destination": elsewhere})
    assert (made.status, made.json["tenant_id"]) == (201, None)
    assert made.json["destination"] == f"{elsewhere}/operators/{made.json['export_id']}/"
    _done(made.json["export_id"])
    shown = operator().get(made.headers["Location"]).json
    assert shown["rows_done"] == 6
    content = operator().download(f"{made.headers['Location']}/files/{shown['files'][0]['name']}")
    assert content.count(b"\n") == 7
    one = operator().post("/v1/admin/exports", {**BODY, "tenant_id": tenant.public_id}).json
    listed = operator().get(f"/v1/admin/exports?tenant_id={tenant.public_id}").json["items"]
    assert [item["export_id"] for item in listed] == [one["export_id"]]
    assert tenant_admin(tenant).get("/v1/exports").json["items"] == []
    bad = operator().post("/v1/admin/exports", {**BODY, "destination": "ftp://x/y", "tenant_id": "tnt_x"})
    assert bad.status == 422
    bad = operator().post("/v1/admin/exports", {**BODY, "destination": "ftp://x/y"})
    assert [fault["pointer"] for fault in bad.json["errors"]] == ["/destination"]


def test_schedules_are_set_listed_and_removed(tenant: Any, folder: Path) -> None:
    ours, path = tenant_admin(tenant), "/v1/export-schedules/FOCUS"
    made = ours.call("PUT", path, {"cadence": "MONTHLY", "format": "PARQUET"})
    assert (made.status, made.json["cadence"], made.headers["ETag"]) == (200, "MONTHLY", '"1"')
    assert ours.call("PUT", path, {"cadence": "MONTHLY", "format": "PARQUET"}).headers["ETag"] == '"1"'
    changed = ours.call("PUT", path, {"cadence": "DAILY"}, headers={"If-Match": '"1"'})
    assert (changed.json["format"], changed.headers["ETag"]) == ("CSV", '"2"')
    assert ours.call("PUT", path, {"cadence": "DAILY"}, headers={"If-Match": '"1"'}).status == 412
    assert [i["dataset"] for i in ours.get("/v1/export-schedules").json["items"]] == ["FOCUS"]
    assert tenant_admin(used_in_october()).get("/v1/export-schedules").json["items"] == []
    assert ours.call("PUT", "/v1/export-schedules/ODD", {"cadence": "DAILY"}).status == 404
    assert ours.call("PUT", path, {"cadence": "HOURLY"}).status == 422
    assert tenant_admin(tenant, "usage:read").call("PUT", path, {"cadence": "DAILY"}).status == 403
    assert ours.delete(path).status == 204
    assert ours.delete(path).status == 404
    assert not ExportSchedule.objects.exists()
    actions = AuditEvent.objects.filter(action__startswith="export_schedule.").order_by("id")
    assert list(actions.values_list("action", flat=True)) == [
        "export_schedule.set", "export_schedule.set", "export_schedule.remove",
    ]  # fmt: skip


def test_operators_have_schedules_of_their_own(control: None, folder: Path) -> None:
    path = "/v1/admin/export-schedules/USAGE"
    assert operator().call("PUT", path, {"cadence": "DAILY"}).status == 200
    assert [i["dataset"] for i in operator().get("/v1/admin/export-schedules").json["items"]] == ["USAGE"]
    assert operator().delete(path).status == 204


def test_progress_is_shown_while_it_runs(tenant: Any, folder: Path) -> None:
    made = tenant_admin(tenant).post("/v1/exports", BODY).json
    export = Export.objects.get()
    held = running.take(export.id)
    assert held is not None
    held.tell(2, expected=3, now=True)
    shown = tenant_admin(tenant).get(f"/v1/exports/{made['export_id']}").json
    assert (shown["state"], shown["rows_done"], shown["rows_expected"]) == ("RUNNING", 2, 3)
    Export.objects.update(leased_until=datetime.now(UTC) - timedelta(seconds=1))
    assert running.run(export.id)
