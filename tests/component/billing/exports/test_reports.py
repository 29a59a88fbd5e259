"""Reports over the cells' history: in a folder, across cells and tenants, in bounded time and memory."""

from __future__ import annotations

import uuid
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from billing.exports import lake
from billing.refusals import Unavailable
from controlplane.identity import TENANT, encode
from tests.component.billing.exports.past import write_day
from tests.component.controlplane.signed import operator

pytestmark = pytest.mark.django_db
DAY = date(2026, 10, 5)
ONE = uuid.UUID(int=1)


@pytest.fixture
def history(control: None, tmp_path: Path, settings: Any) -> str:
    url = (tmp_path / "lake").as_uri()
    settings.BILLING_LAKE = {**settings.BILLING_LAKE, "url": url}
    return url


@pytest.fixture
def written(history: str, tmp_path: Path) -> str:
    """Two cells and two days; on the second a run of cell-1 was redriven and succeeded."""
    write_day(history, tmp_path, DAY, cell="cell-1", states={"SUCCEEDED": 3, "FAILED": 2}, tenant_id=ONE)
    write_day(history, tmp_path, DAY, cell="cell-2", region="us-1", states={"SUCCEEDED": 1})
    write_day(
        history, tmp_path, DAY + timedelta(days=1), cell="cell-1", states={"FAILED": 2, "UNKNOWN": 1},
        again={"SUCCEEDED": 1}, tenant_id=ONE,
    )  # fmt: skip
    return history


def _report(name: str, query: str = "from=2026-10-05&to=2026-10-06") -> Any:
    return operator().get(f"/v1/admin/reports/{name}?{query}")


def test_failed_runs_by_region_cell_and_day(written: str) -> None:
    found = _report("failed-runs")
    assert found.status == 200, found
    said = [(i["region"], i["cell"], i["day"], i["runs"], i["failed"]) for i in found.json["items"]]
    assert said == [
        ("eu-1", "cell-1", "2026-10-05", 5, 2),
        ("eu-1", "cell-1", "2026-10-06", 3, 2),
        ("us-1", "cell-2", "2026-10-05", 1, 0),
    ]
    assert found.json["items"][1]["states"] == {"FAILED": 1, "SUCCEEDED": 1, "UNKNOWN": 1}
    assert (found.json["days"], found.json["files"]) == (3, 4)


def test_busiest_tenants_and_their_bytes(written: str) -> None:
    busiest = _report("busiest-tenants").json["items"]
    assert [(i["runs"], i["attempts"], i["failed"]) for i in busiest] == [(8, 16, 4), (1, 2, 0)]
    assert busiest[0]["tenant_id"] == encode(TENANT, ONE)
    assert _report("busiest-tenants", "from=2026-10-05&to=2026-10-06&limit=1").json["items"] == busiest[:1]
    assert [i["bytes"] for i in _report("bytes-per-tenant").json["items"]] == [24, 3]


def test_only_days_asked_for_are_read(written: str) -> None:
    found = _report("failed-runs", "from=2026-10-06&to=2026-10-06").json
    assert [(i["cell"], i["day"]) for i in found["items"]] == [("cell-1", "2026-10-06")]
    nothing = _report("failed-runs", "from=2026-09-01&to=2026-09-02").json
    assert (nothing["items"], nothing["days"], nothing["files"]) == ([], 0, 0)


def test_files_that_no_manifest_names_are_not_read(written: str, tmp_path: Path) -> None:
    (folder,) = (tmp_path / "lake" / "runs").glob("*/cell=cell-2/date=*")
    (folder / "part-of-a-writer-that-crashed.parquet").write_bytes(b"half")
    assert _report("failed-runs").json["files"] == 4


@pytest.mark.parametrize(
    ("name", "query", "status"),
    [
        ("failed-runs", "from=2026-09-01&to=2026-10-06", 422),
        ("failed-runs", "from=2026-10-06&to=2026-10-05", 422),
        ("failed-runs", "limit=0", 422),
        ("failed-runs", "color=red", 422),
        ("everything", "limit=1", 404),
    ],
)
def test_what_cannot_be_asked(history: str, name: str, query: str, status: int) -> None:
    assert _report(name, query).status == status


def test_too_many_bytes_and_too_little_time_are_said(written: str, settings: Any) -> None:
    settings.BILLING_LAKE = {**settings.BILLING_LAKE, "most_bytes": 10}
    (fault,) = _report("failed-runs").json["errors"]
    assert "a report reads 10" in fault["detail"]
    settings.BILLING_LAKE = {**settings.BILLING_LAKE, "most_bytes": 10**9, "seconds": 0}
    (fault,) = _report("failed-runs").json["errors"]
    assert "takes longer than 0 s" in fault["detail"]


def test_one_report_at_a_time(written: str) -> None:
    with lake._alone:
        answer = _report("failed-runs")
        assert (answer.status, answer.json["code"]) == (503, "UNAVAILABLE")
        with pytest.raises(Unavailable, match="another report"):
            lake.answer(lake.Report.FAILED_RUNS, DAY, DAY + timedelta(days=1), limit=1)
    assert _report("failed-runs").status == 200


def test_without_a_lake_that_is_said(control: None, settings: Any) -> None:
    settings.BILLING_LAKE = {**settings.BILLING_LAKE, "url": ""}
    answer = _report("failed-runs")
    assert answer.status == 409
    assert "CONTROL_LAKE" in answer.json["detail"]
