"""/v1/admin/regions, /v1/admin/cells, /v1/admin/placements"""

from __future__ import annotations

from typing import Any

from django.db.models import Count, QuerySet, Sum
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework.request import Request
from rest_framework.response import Response

from cells.contract import Scope
from controlplane.api.base import ApiView
from controlplane.api.documents import (
    CellDocument,
    ChoiceDocument,
    OperatorPlacementDocument,
    RegionDocument,
    page_of,
)
from controlplane.api.forms import Because, NewCell, NewRegion, WouldPlace
from controlplane.api.idempotency import once
from controlplane.api.pagination import keyset_page
from controlplane.api.permissions import needs
from controlplane.api.topology_documents import OneCellDocument
from controlplane.errors import NotFound
from controlplane.topology.actions.cells import register_cell, set_cell_state
from controlplane.topology.actions.placement import candidates
from controlplane.topology.actions.regions import register_region
from controlplane.topology.chooser import Wish, choose_cell
from controlplane.topology.models import Cell, CellState, Placement, Region


def _cells() -> QuerySet[Cell]:
    return Cell.objects.prefetch_related("sites").annotate(
        tenant_count=Count("placements"), promised=Sum("placements__tenant__quota__job_runs_per_second")
    )


def _show_cell(cell: Cell) -> dict[str, Any]:
    return dict(CellDocument(cell).data)


def found_cell(name: str) -> Cell:
    """A cell with the figures that its document shows."""
    cell = _cells().filter(pk=name).first()
    if cell is None:
        raise NotFound("no such cell")
    return cell


class RegionsView(ApiView):
    scopes = needs(GET=Scope.OPERATOR, POST=Scope.OPERATOR)
    needs_tenant = False
    parameters = frozenset({"limit", "cursor"})
    idempotent_post = True

    @extend_schema(operation_id="list_regions", responses=page_of(RegionDocument))
    def get(self, request: Request) -> Response:
        """Regions."""
        return keyset_page(request, Region.objects.all(), ["name"], lambda r: RegionDocument(r).data)

    @extend_schema(operation_id="register_region", request=NewRegion, responses={201: RegionDocument})
    def post(self, request: Request) -> Response:
        """Makes a region known."""
        form = self.read(NewRegion)
        return once(
            request,
            lambda: Response(RegionDocument(register_region(**form, actor=self.actor)).data, 201),
        )


class CellsView(ApiView):
    scopes = needs(GET=Scope.OPERATOR, POST=Scope.OPERATOR)
    needs_tenant = False
    parameters = frozenset({"limit", "cursor", "region", "state"})
    idempotent_post = True

    @extend_schema(operation_id="list_cells", responses=page_of(CellDocument))
    def get(self, request: Request) -> Response:
        """Cells with what is promised on them and what they last said."""
        exact = {n: request.query_params[n] for n in ("region", "state") if n in request.query_params}
        return keyset_page(request, _cells().filter(**exact), ["name"], _show_cell)

    @extend_schema(operation_id="register_cell", request=NewCell, responses={201: CellDocument})
    def post(self, request: Request) -> Response:
        """Makes a cell known, or changes its address, key or capacity."""
        form = self.read(NewCell)
        form["key"] = bytes.fromhex(form.pop("key_hex"))

        def create() -> Response:
            cell = register_cell(**form, actor=self.actor)
            return Response(
                _show_cell(found_cell(cell.name)), 201, headers={"Location": f"/v1/admin/cells/{cell.name}"}
            )

        return once(request, create)


class CellView(ApiView):
    scopes = needs(GET=Scope.OPERATOR)
    needs_tenant = False

    @extend_schema(operation_id="get_cell", responses=OneCellDocument)
    def get(self, request: Request, name: str) -> Response:
        """One cell, with its sites and how far it is drained or filled."""
        return Response(OneCellDocument(found_cell(name)).data)


class _CellVerb(ApiView):
    scopes = needs(POST=Scope.OPERATOR)
    needs_tenant = False
    state: CellState

    @extend_schema(request=Because, responses=CellDocument)
    def post(self, request: Request, name: str) -> Response:
        set_cell_state(name=name, state=self.state, actor=self.actor, reason=self.read(Because)["reason"])
        return Response(_show_cell(found_cell(name)))


@extend_schema_view(post=extend_schema(operation_id="open_cell", description="Takes new tenants (again)."))
class OpenCellView(_CellVerb):
    state = CellState.OPEN


@extend_schema_view(post=extend_schema(operation_id="cordon_cell", description="No new tenants."))
class CordonCellView(_CellVerb):
    state = CellState.CORDONED


@extend_schema_view(post=extend_schema(operation_id="retire_cell", description="Gone; must be empty."))
class RetireCellView(_CellVerb):
    state = CellState.RETIRED


class PlacementsView(ApiView):
    scopes = needs(GET=Scope.OPERATOR)
    needs_tenant = False
    parameters = frozenset({"limit", "cursor", "cell"})

    @extend_schema(operation_id="list_placements", responses=page_of(OperatorPlacementDocument))
    def get(self, request: Request) -> Response:
        """Who lives where."""
        placements = Placement.objects.select_related("tenant", "cell")
        if "cell" in request.query_params:
            placements = placements.filter(cell=request.query_params["cell"])
        return keyset_page(request, placements, ["tenant_id"], lambda p: OperatorPlacementDocument(p).data)


class ChooseView(ApiView):
    scopes = needs(POST=Scope.OPERATOR)
    needs_tenant = False

    @extend_schema(operation_id="explain_placement", request=WouldPlace, responses=ChoiceDocument)
    def post(self, request: Request) -> Response:
        """Which cell a tenant would get, and why. Places nobody."""
        form = self.read(WouldPlace)
        wish = Wish(
            region=form["region"],
            runs_per_second=form["job_runs_per_second"],
            dedicated=form["dedicated"],
        )
        found = candidates(form["region"])
        choice = choose_cell(wish, found, beside=found)
        return Response(ChoiceDocument({"cell": choice.cell, **choice.told()}).data)
