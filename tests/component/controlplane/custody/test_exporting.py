"""Everything of a tenant in files: whole, verified, gone on with after a crash, and nobody else's."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pytest

from controlplane.client.tenant_export_calls import faults_of
from controlplane.custody import contents, exporting, tasks
from controlplane.custody.contents import Page
from controlplane.custody.models import ExportState, TenantExport
from controlplane.errors import Conflicting, Forbidden
from controlplane.tenants.models import Tenant
from tests.component.controlplane.factories import ACTOR, REASON, MembershipFactory, TenantFactory
from tests.component.controlplane.signed import tenant_admin

pytestmark = pytest.mark.django_db
_JOBS = 25


@pytest.fixture(autouse=True)
def place(control: None, settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for files; what cells would tell is told by page: jobs on three, and of the rest nothing."""
    settings.BILLING_EXPORTS = {**settings.BILLING_EXPORTS, "url": f"file://{tmp_path}"}
    settings.CUSTODY = {**settings.CUSTODY, "rows_per_file": 10}
    kinds = []
    for name, read in contents.KINDS:
        kinds.append((name, _jobs if name == "jobs" else _nothing if read.__qualname__.startswith(
            ("_of_cell", "_histories")) else read))  # fmt: skip
    monkeypatch.setattr(exporting, "KINDS", tuple(kinds))
    return tmp_path


def _nothing(tenant_id: uuid.UUID, cursor: str) -> Page:
    return Page(rows=[], cursor="")


def _jobs(tenant_id: uuid.UUID, cursor: str) -> Page:
    begin = int(cursor or 0)
    rows = [{"job_id": n, "of": str(tenant_id)} for n in range(begin, min(_JOBS, begin + 10))]
    return Page(rows=rows, cursor=str(begin + 10) if begin + 10 < _JOBS else "")


def _asked(tenant: Tenant) -> TenantExport:
    return exporting.request_export(tenant_id=tenant.id, actor=ACTOR, reason=REASON)


def test_written_and_verified(place: Path) -> None:
    tenant, other = TenantFactory(), TenantFactory()
    mine, theirs = MembershipFactory(tenant=tenant), MembershipFactory(tenant=other)
    export = _asked(tenant)
    with pytest.raises(Conflicting):
        _asked(tenant)
    assert exporting.run(export.id)
    assert not exporting.run(export.id)
    export.refresh_from_db()
    assert (export.state, export.counts["jobs"], export.counts["tenant"]) == (ExportState.DONE, _JOBS, 1)
    folder = place / exporting.folder_of(export)
    counts, faults = faults_of(folder)
    assert faults == []
    assert counts["jobs"] == _JOBS
    assert len(list(folder.glob("jobs-*.jsonl"))) == 3
    text = "".join(path.read_text() for path in folder.iterdir())
    assert mine.user.email in text
    assert theirs.user.email not in text
    assert str(other.id) not in text


def test_faults_are_found(place: Path) -> None:
    export = _asked(TenantFactory())
    exporting.run(export.id)
    folder = place / exporting.folder_of(export)
    first, second, third = sorted(folder.glob("jobs-*.jsonl"))
    first.write_bytes(first.read_bytes()[:-1] + b" \n")
    second.unlink()
    third.with_name("more.jsonl").write_text("{}\n")
    said = "\n".join(faults_of(folder)[1])
    assert f"{first.name} has SHA-256" in said
    assert f"{second.name} is missing" in said
    assert "more.jsonl is in no manifest" in said
    assert "jobs: 15 rows, the manifest says 25" in said


def test_a_crash_costs_one_file(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cell goes away amid the jobs: what was written stays, and the next try goes on behind it."""
    export = _asked(TenantFactory())
    asked: list[str] = []
    kinds = dict(exporting.KINDS)

    def away_once(tenant_id: uuid.UUID, cursor: str) -> Page:
        asked.append(cursor)
        if asked == ["", "10"]:
            raise ConnectionError("the cell is away")
        return _jobs(tenant_id, cursor)

    kinds["jobs"] = away_once
    monkeypatch.setattr(exporting, "KINDS", tuple(kinds.items()))
    assert not exporting.run(export.id)
    export.refresh_from_db()
    assert (export.state, export.cursor, export.error) == (
        ExportState.REQUESTED, "10", "ConnectionError: the cell is away",
    )  # fmt: skip
    kept = [file["name"] for file in export.files]
    TenantExport.objects.update(due_at=export.created_at)
    assert exporting.run(export.id)
    assert asked == ["", "10", "10", "20"], "nothing that was kept is read again"
    export.refresh_from_db()
    assert [file["name"] for file in export.files][: len(kept)] == kept
    assert faults_of(place / exporting.folder_of(export))[1] == []
    lines = [
        json.loads(line)["job_id"]
        for path in sorted((place / exporting.folder_of(export)).glob("jobs-*.jsonl"))
        for line in path.read_text().splitlines()
    ]
    assert lines == list(range(_JOBS))


def test_whoever_is_overtaken_keeps_nothing(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    export = _asked(TenantFactory())
    kinds = dict(exporting.KINDS)

    def overtaken(tenant_id: uuid.UUID, cursor: str) -> Page:
        TenantExport.objects.update(lease=uuid.uuid4())
        return _jobs(tenant_id, cursor)

    kinds["jobs"] = overtaken
    monkeypatch.setattr(exporting, "KINDS", tuple(kinds.items()))
    assert not exporting.run(export.id)
    export.refresh_from_db()
    assert export.state == ExportState.RUNNING
    assert "jobs" not in export.counts


def test_expired(place: Path) -> None:
    export = _asked(TenantFactory())
    exporting.run(export.id)
    TenantExport.objects.update(expires_at=export.created_at)
    assert exporting.expire() == 1
    assert exporting.expire() == 0
    assert not (place / exporting.folder_of(export)).exists()


def test_the_api(place: Path) -> None:
    tenant, other = TenantFactory(), TenantFactory()
    made = tenant_admin(tenant).post("/v1/tenant-exports")
    assert made.status == 202
    path = f"/v1/tenant-exports/{made.json['tenant_export_id']}"
    assert tenant_admin(tenant).get(f"{path}/files/manifest.json").status == 409
    export = TenantExport.objects.get()
    exporting.run(export.id)
    shown = tenant_admin(tenant).get(path).json
    assert (shown["state"], shown["kinds_done"]) == ("DONE", len(shown["kinds"]))
    manifest = json.loads(tenant_admin(tenant).download(f"{path}/files/manifest.json"))
    assert manifest["tenant_id"] == tenant.public_id
    assert tenant_admin(other).get(path).status == 404
    assert tenant_admin(other).get(f"{path}/files/manifest.json").status == 404
    assert tenant_admin(other).get("/v1/tenant-exports").json["items"] == []


def test_only_owners(place: Path) -> None:
    from controlplane.actors import Actor

    with pytest.raises(Forbidden):
        exporting.request_export(tenant_id=TenantFactory().id, actor=Actor(name="user:x"), reason="")


def test_others_have_their_turn(place: Path) -> None:
    """An export whose turn is over waits behind the others, at a file that is kept, and ends all the same."""
    first, second = _asked(TenantFactory()), _asked(TenantFactory())
    assert not exporting.run(first.id, seconds=0)
    first.refresh_from_db()
    assert (first.state, first.lease, len(first.files)) == (ExportState.REQUESTED, None, 1)
    assert exporting.due(limit=1) == [second.id]
    turns = 1
    while not exporting.run(first.id, seconds=0):
        turns += 1
    first.refresh_from_db()
    assert turns > len(contents.KINDS) - 1
    counts, faults = faults_of(place / exporting.folder_of(first))
    assert (counts["jobs"], faults) == (_JOBS, [])


def test_one_is_written_at_a_time(place: Path) -> None:
    ids = {_asked(TenantFactory()).id for _ in range(3)}
    assert tasks.run_exports() == 3
    assert set(TenantExport.objects.filter(state="DONE").values_list("id", flat=True)) == ids
