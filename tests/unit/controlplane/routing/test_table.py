"""The routing table."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.routing.table import Cell, Change, Changes, Key, Plane, Snapshot, Table, Tenant, plane_of


@pytest.mark.parametrize(
    ("path", "plane"),
    [
        ("/v1/tenant", Plane.MANAGEMENT),
        ("/v1/tenant/quotas", Plane.MANAGEMENT),
        ("/v1/tenants", Plane.DATA),
        ("/v1/api-keys/x:rotate", Plane.MANAGEMENT),
        ("/v1/exports:run", Plane.MANAGEMENT),
        ("/v1/budget", Plane.MANAGEMENT),
        ("/v1/schedules:forecast", Plane.MANAGEMENT),
        ("/v1/schedules:preview", Plane.DATA),
        ("/v1/schedules:forecast/x", Plane.MANAGEMENT),
        ("/v1/admin/cells", Plane.MANAGEMENT),
        ("/v1/administer", Plane.DATA),
        ("/v1/jobs", Plane.DATA),
        ("/v1/jobs:batch", Plane.DATA),
        ("/v1/jobs/job_1:pause", Plane.DATA),
        ("/v1/%74enant", Plane.DATA),  # a cell knows no such thing and says 404
        ("/v1/", None),
        ("/v1/:x", None),
        ("/v1//jobs", None),
        ("/v1", None),
        ("/v2/jobs", None),
        ("/V1/jobs", None),
        ("/internal/tenants", None),
        ("", None),
    ],
)
def test_whole_segments_decide_the_plane(path: str, plane: Plane | None) -> None:
    assert plane_of(path) is plane


@given(st.text())
def test_any_text_is_a_path(text: str) -> None:
    assert plane_of(text) in {None, Plane.DATA} or text.startswith("/v1/")


def _table() -> Table:
    return Table(
        Snapshot(
            cursor="5",
            cells={"a": Cell(url="http://a", secret_hex="00" * 32)},
            tenants={"tnt_1": Tenant(cell="a", epoch=1)},
            keys={"k": Key(sha256="f" * 64, tenant_id="tnt_1", scopes=("jobs:read",))},
        )
    )


def test_changes_are_applied_in_order() -> None:
    table = _table()
    applied = table.apply(
        Changes(
            cursor="9",
            changes=[
                Change(kind="key", id="k", value=None),
                Change(
                    kind="key", id="k2", value={"sha256": "0" * 64, "tenant_id": None, "scopes": ["operator"]}
                ),
                Change(
                    kind="tenant", id="tnt_1", value={"cell": "b", "epoch": 2, "of_a_later_version": True}
                ),
                Change(kind="planet", id="x", value={}),
                Change(kind="key", id="never", value=None),
            ],
        )
    )
    assert applied == 4
    assert table.cursor == "9"
    assert set(table.keys) == {"k2"}
    assert table.tenants["tnt_1"] == Tenant(cell="b", epoch=2)


def test_a_cells_new_key_is_used_at_once() -> None:
    table = _table()
    assert table.cell_secret("a") == bytes(32)
    table.apply(
        Changes(
            cursor="6", changes=[Change(kind="cell", id="a", value={"url": "u", "secret_hex": "ff" * 32})]
        )
    )
    assert table.cell_secret("a") == b"\xff" * 32


def test_the_copy_on_disk_is_the_table() -> None:
    table = _table()
    again = Table(msgspec.json.decode(msgspec.json.encode(table.snapshot(now_ms=1)), type=Snapshot))
    assert (again.cursor, again.keys, again.tenants, again.cells) == (
        table.cursor,
        table.keys,
        table.tenants,
        table.cells,
    )
