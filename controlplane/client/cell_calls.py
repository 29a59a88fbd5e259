"""The API's requests about cells, where tenants live, and how full and late that is: for operators' keys.
Of the key's own tenant: its quotas, and what its runs waited for. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from controlplane.client.cell_documents import (
    AddedCell,
    Cell,
    Choice,
    Delays,
    Owners,
    Placement,
    Quotas,
    Readiness,
    Region,
    Relocation,
    RelocationPlan,
    Suggestions,
    Topology,
)
from controlplane.client.pages import Page, reads, reads_page
from controlplane.client.wire import Call, path, query, without_none

_CELLS, _RELOCATIONS = "/v1/admin/cells", "/v1/admin/relocations"


# --- cells -------------------------------------------------------------------------------
def list_cells(
    *,
    region: str | None = None,
    state: str | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Call[Page[Cell]]:
    """All cells."""
    return Call(
        method="GET",
        path=_CELLS,
        read=reads_page(Cell),
        query=query(region=region, state=state, limit=limit, cursor=cursor),
    )


def get_cell(name: str) -> Call[Cell]:
    """One cell with its sites."""
    return Call(method="GET", path=path(_CELLS + "/{name}", name=name), read=reads(Cell))


def add_cell(
    name: str,
    *,
    region: str,
    url: str,
    database_url: str,
    valkey_url: str,
    key_hex: str,
    kind: str | None = None,
    capacity_runs_per_second: int | None = None,
    reason: str | None = None,
) -> Call[AddedCell]:
    """Make a cell on given engines: looked at, migrated, known, CORDONED. Again it goes on."""
    return Call(
        method="POST",
        path=_CELLS + ":add",
        read=reads(AddedCell),
        body=without_none(
            name=name,
            region=region,
            url=url,
            database_url=database_url,
            valkey_url=valkey_url,
            key_hex=key_hex,
            kind=kind,
            capacity_runs_per_second=capacity_runs_per_second,
            reason=reason,
        ),
        repeatable=True,
    )


def check_cell(name: str) -> Call[Readiness]:
    """Ask a cell now whether it works."""
    return Call(
        method="POST",
        path=path(_CELLS + "/{name}", name=name) + ":check",
        read=reads(Readiness),
        repeatable=True,
    )


def _verb(name: str, verb: str, **body: Any) -> Call[Cell]:
    return Call(
        method="POST",
        path=path(_CELLS + "/{name}", name=name) + f":{verb}",
        read=reads(Cell),
        body=without_none(**body),
        repeatable=True,
    )


def open_cell(name: str, *, reason: str | None = None) -> Call[Cell]:
    """Let it take new tenants (again)."""
    return _verb(name, "open", reason=reason)


def cordon_cell(name: str, *, reason: str | None = None) -> Call[Cell]:
    """Let it take no new tenants; those there stay."""
    return _verb(name, "cordon", reason=reason)


def retire_cell(name: str, *, reason: str | None = None) -> Call[Cell]:
    """It is gone: empty, and all that it metered is sealed."""
    return _verb(name, "retire", reason=reason)


def drain_cell(
    name: str, *, at_once: int | None = None, override: bool | None = None, reason: str | None = None
) -> Call[Cell]:
    """Move every tenant of a cell away, so many at the same time."""
    call = _verb(name, "drain", at_once=at_once, override=override, reason=reason)
    return Call(method=call.method, path=call.path, read=call.read, body=call.body)


def fill_cell(name: str, *, at_once: int | None = None, reason: str | None = None) -> Call[Cell]:
    """Move tenants of fuller cells here, until it is about as full."""
    call = _verb(name, "fill", at_once=at_once, reason=reason)
    return Call(method=call.method, path=call.path, read=call.read, body=call.body)


def plan_relocation(name: str, *, kind: str | None = None) -> Call[RelocationPlan]:
    """Who would move where if the cell were drained (or filled, with `kind="FILL"`) now."""
    return Call(
        method="GET",
        path=path(_CELLS + "/{name}/relocation-plan", name=name),
        read=reads(RelocationPlan),
        query=query(kind=kind),
    )


# --- relocations -------------------------------------------------------------------------
def list_relocations(
    *,
    cell: str | None = None,
    state: str | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Call[Page[Relocation]]:
    """Cells that are or were drained or filled, the newest first."""
    return Call(
        method="GET",
        path=_RELOCATIONS,
        read=reads_page(Relocation),
        query=query(cell=cell, state=state, limit=limit, cursor=cursor),
    )


def get_relocation(relocation_id: str) -> Call[Relocation]:
    """How far one is."""
    return Call(method="GET", path=path(_RELOCATIONS + "/{id}", id=relocation_id), read=reads(Relocation))


def _change(relocation_id: str, verb: str, **body: Any) -> Call[Relocation]:
    return Call(
        method="POST",
        path=path(_RELOCATIONS + "/{id}", id=relocation_id) + f":{verb}",
        read=reads(Relocation),
        body=without_none(**body),
    )


def pause_relocation(relocation_id: str, *, reason: str | None = None) -> Call[Relocation]:
    """Begin no further moves; those under way go on."""
    return _change(relocation_id, "pause", reason=reason)


def resume_relocation(
    relocation_id: str, *, at_once: int | None = None, reason: str | None = None
) -> Call[Relocation]:
    """Begin moves again, perhaps at another pace."""
    return _change(relocation_id, "resume", at_once=at_once, reason=reason)


def stop_relocation(relocation_id: str, *, reason: str | None = None) -> Call[Relocation]:
    """End it: who has moved stays there."""
    return _change(relocation_id, "stop", reason=reason)


# --- maps --------------------------------------------------------------------------------
def get_topology() -> Call[Topology]:
    """Regions, cells and sites with headroom, use and lag."""
    return Call(method="GET", path="/v1/admin/topology", read=reads(Topology))


def register_region(name: str, *, label: str | None = None, reason: str | None = None) -> Call[Region]:
    """Make a region known; again, its label is changed."""
    return Call(
        method="POST",
        path="/v1/admin/regions",
        read=reads(Region),
        body=without_none(name=name, label=label, reason=reason),
        keyed=True,
    )


def list_suggestions() -> Call[Suggestions]:
    """Which tenants should move where, and why."""
    return Call(method="GET", path="/v1/admin/suggestions", read=reads(Suggestions))


def get_ownership(*, cell: str | None = None) -> Call[Owners]:
    """Who owns each cell and its tenants, and who disagrees."""
    return Call(method="GET", path="/v1/admin/ownership", read=reads(Owners), query=query(cell=cell))


def list_placements(
    *, cell: str | None = None, limit: int | None = None, cursor: str | None = None
) -> Call[Page[Placement]]:
    """Who lives where, and what it was chosen from."""
    return Call(
        method="GET",
        path="/v1/admin/placements",
        read=reads_page(Placement),
        query=query(cell=cell, limit=limit, cursor=cursor),
    )


def explain_placement(
    region: str, job_runs_per_second: int, *, dedicated: bool | None = None
) -> Call[Choice]:
    """Which cell a tenant would get, and why. Places nobody."""
    return Call(
        method="POST",
        path="/v1/admin/placements:explain",
        read=reads(Choice),
        body=without_none(region=region, job_runs_per_second=job_runs_per_second, dedicated=dedicated),
        repeatable=True,
    )


# --- the key's own tenant ----------------------------------------------------------------
def get_quotas() -> Call[Quotas]:
    """Each quota, what is used of it now, and what happens over it."""
    return Call(method="GET", path="/v1/quotas", read=reads(Quotas))


def read_delays(*, since: datetime | str | None = None, until: datetime | str | None = None) -> Call[Delays]:
    """What the tenant's runs of at most seven days waited for; the last day if nothing is said."""
    return Call(method="GET", path="/v1/delays", read=reads(Delays), query=query(since=since, until=until))
