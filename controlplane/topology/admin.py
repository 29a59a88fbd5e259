"""Operators' pages: regions, cells, placements."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import Count, QuerySet, Sum
from django.http import HttpRequest
from unfold.admin import TabularInline

from controlplane.adminsite import ReadOnlyAdmin, for_each, operator
from controlplane.topology.actions.cells import set_cell_state
from controlplane.topology.models import Cell, CellState, Placement, Region, Relocation, Site, Tenure

_REASON = "on the operators' pages"


class SiteInline(TabularInline):  # type: ignore[misc]
    model = Site
    exclude = ("sealed_database_url", "sealed_valkey_url")
    extra = 0
    can_delete = False

    def has_add_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return False

    def has_view_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return bool(request.user.is_staff)


@admin.register(Region)
class RegionAdmin(ReadOnlyAdmin):
    list_display = ("name", "label", "created_at")


@admin.register(Cell)
class CellAdmin(ReadOnlyAdmin):
    list_display = (
        "name",
        "region",
        "kind",
        "state",
        "tenants",
        "promised",
        "capacity_runs_per_second",
        "status_at",
        "status_error",
    )
    list_filter = ("region", "state", "kind")
    exclude = ("sealed_key",)
    inlines = (SiteInline,)
    actions = ("open_again", "cordon")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Cell]:
        return (
            super()
            .get_queryset(request)
            .annotate(
                n=Count("placements"), runs=Sum("placements__tenant__quota__job_runs_per_second", default=0)
            )
        )

    @admin.display(ordering="n")
    def tenants(self, cell: Cell) -> int:
        return cell.n  # type: ignore[attr-defined, no-any-return]

    @admin.display(ordering="runs", description="promised runs/s")
    def promised(self, cell: Cell) -> int:
        return cell.runs  # type: ignore[attr-defined, no-any-return]

    @admin.action(description="Open: takes new tenants")
    def open_again(self, request: HttpRequest, chosen: QuerySet[Cell]) -> None:
        self._set(request, chosen, CellState.OPEN, "Opened")

    @admin.action(description="Cordon: no new tenants")
    def cordon(self, request: HttpRequest, chosen: QuerySet[Cell]) -> None:
        self._set(request, chosen, CellState.CORDONED, "Cordoned")

    def _set(self, request: HttpRequest, chosen: QuerySet[Cell], state: CellState, done: str) -> None:
        actor = operator(request)
        for_each(
            request,
            chosen,
            lambda c: set_cell_state(name=c.name, state=state, actor=actor, reason=_REASON),
            done,
        )


@admin.register(Site)
class SiteAdmin(ReadOnlyAdmin):
    list_display = ("cell", "region", "url", "primary", "database", "valkey", "ready_at")
    exclude = ("sealed_database_url", "sealed_valkey_url")


@admin.register(Placement)
class PlacementAdmin(ReadOnlyAdmin):
    list_display = ("tenant", "cell", "epoch", "state", "confirmed_version", "confirmed_at", "why")
    list_filter = ("cell", "state")
    search_fields = ("tenant__slug",)
    list_select_related = ("tenant", "cell")


@admin.register(Relocation)
class RelocationAdmin(ReadOnlyAdmin):
    list_display = ("cell", "kind", "state", "total", "why", "started_by", "created_at", "finished_at")
    list_filter = ("state", "kind")
    list_select_related = ("cell",)


@admin.register(Tenure)
class TenureAdmin(ReadOnlyAdmin):
    # By its id: a stay outlives its tenant.
    list_display = ("tenant_id", "cell", "epoch", "since", "until")
    search_fields = ("tenant__slug",)
    list_select_related = ("cell",)
