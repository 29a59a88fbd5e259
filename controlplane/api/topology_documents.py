"""What the API shows of cells, their sites, relocations, suggestions and owners."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from controlplane.api.documents import CellDocument, Document, NPlusOneDocument
from controlplane.topology.headroom import Spare
from controlplane.topology.models import Cell, Relocation
from controlplane.topology.overview import CellView, RegionView
from controlplane.topology.owners import Owned
from controlplane.topology.relocating import progress_of
from controlplane.topology.relocation_plans import RelocationPlan


class SiteDocument(Document):
    """A cell's presence in a region. `database` and `valkey`: its engines, without passwords; empty where
    they were never told. `ready_at`: when it was first seen to work."""

    region = serializers.CharField(source="region_id")
    primary = serializers.BooleanField()
    url = serializers.CharField()
    database = serializers.CharField()
    valkey = serializers.CharField()
    ready_at = serializers.DateTimeField(allow_null=True)
    status = serializers.JSONField()
    status_at = serializers.DateTimeField(allow_null=True)
    status_error = serializers.CharField()


class RelocationProgressDocument(Document):
    """In tenants. `stuck`: of those that are left, who fits nowhere or whose move was given up."""

    total = serializers.IntegerField()
    moved = serializers.IntegerField()
    moving = serializers.IntegerField()
    left = serializers.IntegerField()
    stuck = serializers.IntegerField()


class RelocationDocument(Document):
    """A cell that is being emptied (DRAIN) or filled (FILL). `why`: what it does, or what it waits for;
    `stuck`: tenants that cannot move now, and why."""

    relocation_id = serializers.CharField(source="public_id")
    cell = serializers.CharField(source="cell_id")
    kind = serializers.CharField()
    state = serializers.CharField()
    at_once = serializers.IntegerField()
    why = serializers.CharField()
    progress = serializers.SerializerMethodField()
    stuck = serializers.DictField(child=serializers.CharField())
    started_by = serializers.CharField()
    reason = serializers.CharField()
    created_at = serializers.DateTimeField()
    changed_at = serializers.DateTimeField()
    finished_at = serializers.DateTimeField(allow_null=True)

    @extend_schema_field(RelocationProgressDocument)
    def get_progress(self, relocation: Relocation) -> dict[str, Any]:
        return dict(RelocationProgressDocument(progress_of(relocation)).data)


class RelocationStepDocument(Document):
    """A tenant that would move. `destination` is null where it fits nowhere."""

    tenant_id = serializers.CharField()
    job_runs_per_second = serializers.IntegerField(source="runs_per_second")
    source = serializers.CharField()
    destination = serializers.CharField(allow_null=True)
    why = serializers.CharField()


class RelocationPlanDocument(Document):
    """Who would move where. `refusal`: why it cannot be done whole; null where it can."""

    steps = RelocationStepDocument(many=True)
    nowhere = serializers.SerializerMethodField()
    refusal = serializers.CharField(allow_null=True)
    n_plus_one_before = NPlusOneDocument(source="before", allow_null=True)
    n_plus_one_afterwards = NPlusOneDocument(source="afterwards", allow_null=True)

    def get_nowhere(self, plan: RelocationPlan) -> int:
        return len(plan.nowhere)


class ReadinessDocument(Document):
    """Whether a cell works, and all that it waits for."""

    ready = serializers.BooleanField()
    waits_for = serializers.ListField(child=serializers.CharField())


class OneCellDocument(CellDocument):
    """A cell with its sites and, while it is drained or filled, how far that is."""

    sites = SiteDocument(many=True)
    relocation = serializers.SerializerMethodField()

    @extend_schema_field(RelocationDocument(allow_null=True))
    def get_relocation(self, cell: Cell) -> dict[str, Any] | None:
        found = cell.relocations.filter(state__in=["RUNNING", "PAUSED"]).first()
        return None if found is None else dict(RelocationDocument(found).data)


class AddedCellDocument(Document):
    """A cell that was added. `made`: it was not known before; `applied`: migrations applied now."""

    cell = OneCellDocument()
    made = serializers.BooleanField()
    applied = serializers.ListField(child=serializers.CharField())
    warnings = serializers.ListField(child=serializers.CharField())


class MappedCellDocument(Document):
    """A cell on the map. Rates are runs a second; `used`, `lag_ms`: null where not known now."""

    name = serializers.CharField(source="cell.name")
    kind = serializers.CharField(source="cell.kind")
    state = serializers.CharField(source="cell.state")
    capacity = serializers.IntegerField(source="seen.capacity")
    may_promise = serializers.IntegerField(source="seen.limit")
    promised = serializers.IntegerField(source="seen.promised")
    room = serializers.IntegerField(source="seen.room")
    tenants = serializers.IntegerField(source="seen.tenants")
    used = serializers.FloatField(allow_null=True)
    lag_ms = serializers.IntegerField(allow_null=True)
    sites = SiteDocument(many=True)
    relocation = serializers.SerializerMethodField()

    @extend_schema_field(RelocationDocument(allow_null=True))
    def get_relocation(self, view: CellView) -> dict[str, Any] | None:
        return None if view.relocation is None else dict(RelocationDocument(view.relocation).data)


class MappedRegionDocument(Document):
    """A region with its cells. `n_plus_one` is null where fewer than two shared cells are in use."""

    region = serializers.CharField(source="region.name")
    label = serializers.CharField(source="region.label")
    n_plus_one = NPlusOneDocument(source="spare", allow_null=True)
    sentence = serializers.CharField()
    cells = MappedCellDocument(many=True)


class TopologyDocument(Document):
    """All regions."""

    regions = MappedRegionDocument(many=True)


class SuggestionDocument(Document):
    """A move that would help: `POST /v1/admin/moves` with both ids begins it. `destination` is null where no
    cell could take the tenant."""

    tenant_id = serializers.CharField()
    slug = serializers.CharField(source="name")
    source = serializers.CharField()
    destination = serializers.CharField(allow_null=True)
    used_runs_per_second = serializers.FloatField(source="used")
    why = serializers.CharField()


class SuggestionsDocument(Document):
    """Tenants that keep a cell hot, by what was measured in the last minutes."""

    items = SuggestionDocument(many=True)


class DifferenceDocument(Document):
    """A tenant about whom the ownership store, our records and its cell do not say the same."""

    tenant_id = serializers.CharField()
    store = serializers.CharField(allow_null=True)
    recorded = serializers.CharField(allow_null=True)
    told = serializers.CharField(allow_null=True)
    why = serializers.CharField()


class OwnedDocument(Document):
    """Who owns a cell by the ownership store. `renewals` grows while a lease is held; `drift` and
    `differences` are empty where all that could be asked agree, `away` says what could not be."""

    cell = serializers.CharField()
    region = serializers.CharField()
    owner_region = serializers.CharField(allow_null=True)
    epoch = serializers.IntegerField(allow_null=True)
    renewals = serializers.IntegerField(allow_null=True)
    promotions = serializers.IntegerField(allow_null=True)
    recorded_epoch = serializers.IntegerField()
    tenants = serializers.IntegerField()
    agreed = serializers.BooleanField()
    drift = serializers.ListField(child=serializers.CharField())
    differences = DifferenceDocument(many=True)
    more_differences = serializers.IntegerField(source="more")
    away = serializers.CharField()


class OwnersDocument(Document):
    """Every cell."""

    items = OwnedDocument(many=True)


def show_relocation(relocation: Relocation) -> dict[str, Any]:
    return dict(RelocationDocument(relocation).data)


def show_map(regions: list[RegionView]) -> dict[str, Any]:
    return dict(TopologyDocument({"regions": regions}).data)


def show_owners(owned: list[Owned]) -> dict[str, Any]:
    return dict(OwnersDocument({"items": owned}).data)


def show_spare(spare: Spare | None) -> dict[str, Any] | None:
    return None if spare is None else dict(NPlusOneDocument(spare).data)
