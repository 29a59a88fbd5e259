"""The API's requests about evacuations, and about sites of cells: for operators' keys. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from controlplane.client.decoding import Document
from controlplane.client.pages import Page, reads, reads_page
from controlplane.client.wire import Call, path, query, without_none

_ALL, _SITES = "/v1/admin/evacuations", "/v1/admin/cells/{name}/sites"
_ENDED = frozenset({"DONE", "ABORTED"})


@dataclass(frozen=True, kw_only=True, slots=True)
class EvacuationStep(Document):
    """One cell of a plan. `target` None: it stays, and `why` says why."""

    cell: str
    source: str
    target: str | None
    why: str
    tenants: int
    job_runs_per_second: int
    behind_bytes: int | None
    dead: bool
    moves_to_stop: int
    moves_to_wait_for: int
    nowhere: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class EvacuationPlan(Document):
    """An evacuation as it would begin. `loads`: what regions carry before and after; `refusal`: why it takes
    an override; `impossible`: why nothing can be begun."""

    region: str
    kind: str
    steps: Sequence[EvacuationStep] = ()
    loads: Sequence[Mapping[str, Any]] = ()
    refusal: str | None
    impossible: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class EvacuatedCell(Document):
    """A cell on its way. `loss`: what a takeover from a silent owner left behind."""

    cell: str
    source: str
    target: str
    state: str
    why: str
    returning: bool
    lifts: int
    progress: Mapping[str, Any] = field(default_factory=dict)
    loss: Mapping[str, Any] | None
    handed_over_ms: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Evacuation(Document):
    """A region that is left or come back to. `why`: what it does, or what it waits for."""

    evacuation_id: str
    region: str
    kind: str
    state: str
    why: str
    at_once: int
    hand_back: bool
    created_at: datetime | None
    finished_at: datetime | None
    cells: Sequence[EvacuatedCell] = ()  # of one that was asked for by its id

    @property
    def over(self) -> bool:
        """Whether nothing follows."""
        return self.state in _ENDED


@dataclass(frozen=True, kw_only=True, slots=True)
class SiteStatus(Document):
    """A cell's site as its keeper tells of it now. `away`: why it could not be asked."""

    region: str
    keeper_url: str
    owner: bool
    away: str
    act: str
    why: str
    epoch: int
    owns: bool
    ready: bool
    streaming: bool
    behind_bytes: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class SiteStatuses(Document):
    """All sites of a cell."""

    items: Sequence[SiteStatus] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class WishPlan(Document):
    """What would become of a wish. `confirmation`: what has to be typed, where something can be lost."""

    cell: str
    region: str
    verb: str
    epoch: int
    owner: str
    says: str
    loses: str
    tenants: int
    behind_bytes: int | None
    refusal: str | None
    confirmation: str
    loads: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class WishAnswer(Document):
    """What a site's keeper said."""

    said: str


# --- evacuations -------------------------------------------------------------------------
def plan_evacuation(region: str, *, kind: str | None = None) -> Call[EvacuationPlan]:
    """Which cells would leave a region (or come back, with `kind="FAIL_BACK"`). Moves nothing."""
    return Call(
        method="GET", path=_ALL + ":plan", read=reads(EvacuationPlan), query=query(region=region, kind=kind)
    )


def start_evacuation(
    region: str,
    *,
    kind: str | None = None,
    to: Mapping[str, str] | None = None,
    at_once: int | None = None,
    override: bool | None = None,
    reason: str | None = None,
    idempotency_key: str | None = None,
) -> Call[Evacuation]:
    """Hand a region's cells over to their other sites, or bring back those that were made there. `to`:
    regions wanted for some cells."""
    return Call(
        method="POST",
        path=_ALL,
        read=reads(Evacuation),
        body=without_none(region=region, kind=kind, to=to, at_once=at_once, override=override, reason=reason),
        keyed=True,
        idempotency_key=idempotency_key,
    )


def list_evacuations(
    *,
    region: str | None = None,
    state: str | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Call[Page[Evacuation]]:
    """Evacuations, the newest first."""
    return Call(
        method="GET",
        path=_ALL,
        read=reads_page(Evacuation),
        query=query(region=region, state=state, limit=limit, cursor=cursor),
    )


def get_evacuation(evacuation_id: str) -> Call[Evacuation]:
    """One evacuation with its cells."""
    return Call(method="GET", path=path(_ALL + "/{id}", id=evacuation_id), read=reads(Evacuation))


def _change(evacuation_id: str, verb: str, **body: Any) -> Call[Evacuation]:
    return Call(
        method="POST",
        path=path(_ALL + "/{id}", id=evacuation_id) + f":{verb}",
        read=reads(Evacuation),
        body=without_none(**body),
    )


def pause_evacuation(evacuation_id: str, *, reason: str | None = None) -> Call[Evacuation]:
    """Begin no further cell; a handover that was asked for gets to its end."""
    return _change(evacuation_id, "pause", reason=reason)


def resume_evacuation(
    evacuation_id: str, *, at_once: int | None = None, reason: str | None = None
) -> Call[Evacuation]:
    """Let it go on, perhaps at another pace."""
    return _change(evacuation_id, "resume", at_once=at_once, reason=reason)


def abort_evacuation(
    evacuation_id: str, *, hand_back: bool | None = None, reason: str | None = None
) -> Call[Evacuation]:
    """Give it up; with `hand_back`, cells that were handed over come back."""
    return _change(evacuation_id, "abort", hand_back=hand_back, reason=reason)


# --- sites -------------------------------------------------------------------------------
def list_sites(cell: str) -> Call[SiteStatuses]:
    """A cell's sites: role, lease and lag, as their keepers tell of them now."""
    return Call(method="GET", path=path(_SITES, name=cell), read=reads(SiteStatuses))


def register_site(
    cell: str, region: str, *, keeper_url: str, url: str | None = None, reason: str | None = None
) -> Call[Document]:
    """Make a cell's presence in a region known, with its keeper's address."""
    return Call(
        method="PUT",
        path=path(_SITES + "/{region}", name=cell, region=region),
        read=reads(Document),
        body=without_none(keeper_url=keeper_url, url=url, reason=reason),
    )


def plan_wish(cell: str, region: str, verb: str) -> Call[WishPlan]:
    """What `hand-over` to a site, its `rejoin`, an `override` or `give-up` would do, and what can be lost."""
    return Call(
        method="GET",
        path=path(_SITES + "/{region}/plan", name=cell, region=region),
        read=reads(WishPlan),
        query=query(verb=verb),
    )


def ask_wish(
    cell: str,
    region: str,
    verb: str,
    *,
    epoch: int | None = None,
    confirm: str | None = None,
    reason: str | None = None,
) -> Call[WishAnswer]:
    """Ask a site for it. `epoch` and `confirm` as the plan showed them."""
    return Call(
        method="POST",
        path=path(_SITES + "/{region}", name=cell, region=region) + f":{verb}",
        read=reads(WishAnswer),
        body=without_none(epoch=epoch, confirm=confirm, reason=reason),
    )
