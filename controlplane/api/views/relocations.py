"""/v1/admin/relocations, and what cells are added, drained and filled by; the maps of the operators."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from cells.contract import Scope
from controlplane.api.base import ApiView, ReasonMixin, Text
from controlplane.api.documents import page_of
from controlplane.api.forms import Because, NewCell, TrueOrFalse, WholeNumber
from controlplane.api.pagination import keyset_page
from controlplane.api.permissions import needs
from controlplane.api.topology_documents import (
    AddedCellDocument,
    OneCellDocument,
    OwnersDocument,
    ReadinessDocument,
    RelocationDocument,
    RelocationPlanDocument,
    SuggestionsDocument,
    TopologyDocument,
    show_map,
    show_owners,
    show_relocation,
)
from controlplane.api.views.topology import found_cell
from controlplane.errors import Conflicting, NotFound, invalid
from controlplane.events.running import one_of
from controlplane.identity import decode
from controlplane.topology.actions.provisioning import add_cell, check_cell
from controlplane.topology.actions.relocations import (
    MOST_AT_ONCE,
    pause_relocation,
    plan_relocation,
    resume_relocation,
    start_drain,
    start_fill,
    stop_relocation,
)
from controlplane.topology.models import RELOCATION, Relocation, RelocationKind
from controlplane.topology.overview import hot_tenants, map_of
from controlplane.topology.owners import ownership_map

#: Of the one that adds a cell.
_ADDING = 0x41444443
_PACE = "moves at the same time"


class AddCell(NewCell):
    """A new cell on given engines."""

    database_url = Text(max_length=1_000, help_text="postgresql://user:password@host:port/name")
    valkey_url = Text(max_length=1_000, help_text="redis://user:password@host:port/number")


class Drain(ReasonMixin):
    """How a cell is emptied."""

    at_once = WholeNumber(required=False, default=1, min_value=1, max_value=MOST_AT_ONCE, help_text=_PACE)
    override = TrueOrFalse(
        required=False, default=False, help_text="even where some fit nowhere: those stay until there is room"
    )


class Fill(ReasonMixin):
    """How a cell is filled."""

    at_once = WholeNumber(required=False, default=1, min_value=1, max_value=MOST_AT_ONCE, help_text=_PACE)


class GoOn(ReasonMixin):
    """Perhaps at another pace."""

    at_once = WholeNumber(required=False, min_value=1, max_value=MOST_AT_ONCE, help_text=_PACE)


class OperatorsView(ApiView):
    """About no tenant."""

    scopes = needs(GET=Scope.OPERATOR, POST=Scope.OPERATOR)
    needs_tenant = False


class AddCellView(OperatorsView):
    scopes = needs(POST=Scope.OPERATOR)

    @extend_schema(operation_id="add_cell", request=AddCell, responses=AddedCellDocument)
    def post(self, request: Request) -> Response:
        """Looks at the engines (all faults at once, nothing is changed then), migrates the database, makes
        the cell known, CORDONED. Asked again it goes on where it broke off."""
        form = self.read(AddCell)
        form["key"] = bytes.fromhex(form.pop("key_hex"))
        with one_of(_ADDING) as ours:
            if not ours:
                # Migrating may take minutes: whoever asks again meanwhile takes no further thread.
                raise Conflicting("a cell is being added just now; ask again when that is over")
            added = add_cell(**form, actor=self.actor)
        return Response(
            {
                "cell": OneCellDocument(found_cell(added.cell.name)).data,
                "made": added.made,
                "applied": added.applied,
                "warnings": added.warnings,
            }
        )


class CheckCellView(OperatorsView):
    scopes = needs(POST=Scope.OPERATOR)

    @extend_schema(operation_id="check_cell", request=None, responses=ReadinessDocument)
    def post(self, request: Request, name: str) -> Response:
        """Asks a cell now whether it works, and what it waits for."""
        return Response(ReadinessDocument(check_cell(name=name)).data)


class DrainCellView(OperatorsView):
    scopes = needs(POST=Scope.OPERATOR)

    @extend_schema(operation_id="drain_cell", request=Drain, responses=OneCellDocument)
    def post(self, request: Request, name: str) -> Response:
        """Takes nobody any more, and moves every tenant away. Refused with the numbers where some fit
        nowhere."""
        start_drain(cell=name, **self.read(Drain), actor=self.actor)
        return Response(OneCellDocument(found_cell(name)).data)


class FillCellView(OperatorsView):
    scopes = needs(POST=Scope.OPERATOR)

    @extend_schema(operation_id="fill_cell", request=Fill, responses=OneCellDocument)
    def post(self, request: Request, name: str) -> Response:
        """Moves tenants here from fuller cells of the region, until it is about as full."""
        start_fill(cell=name, **self.read(Fill), actor=self.actor)
        return Response(OneCellDocument(found_cell(name)).data)


class RelocationPlanView(OperatorsView):
    scopes = needs(GET=Scope.OPERATOR)
    parameters = frozenset({"kind"})

    @extend_schema(
        operation_id="plan_relocation",
        parameters=[
            OpenApiParameter("kind", str, enum=RelocationKind.values, description="DRAIN, if absent.")
        ],
        responses=RelocationPlanDocument,
    )
    def get(self, request: Request, name: str) -> Response:
        """Who would move where if the cell were drained or filled now. Moves nobody."""
        kind = request.query_params.get("kind", RelocationKind.DRAIN.value)
        if kind not in RelocationKind.values:
            raise invalid("/kind", f"one of {', '.join(RelocationKind.values)}")
        return Response(RelocationPlanDocument(plan_relocation(cell=name, kind=RelocationKind(kind))).data)


class RelocationsView(OperatorsView):
    scopes = needs(GET=Scope.OPERATOR)
    parameters = frozenset({"limit", "cursor", "cell", "state"})

    @extend_schema(operation_id="list_relocations", responses=page_of(RelocationDocument))
    def get(self, request: Request) -> Response:
        """Cells that are or were drained or filled, the newest first."""
        found: QuerySet[Relocation] = Relocation.objects.all()
        for name in ("cell", "state"):
            if (value := request.query_params.get(name)) is not None:
                found = found.filter(**{name: value})
        return keyset_page(request, found, ["created_at", "id"], show_relocation, newest_first=True)


def _relocation(text: str) -> Relocation:
    found = decode(RELOCATION, text)
    relocation = None if found is None else Relocation.objects.filter(pk=found).first()
    if relocation is None:
        raise NotFound("no such relocation")
    return relocation


class RelocationView(OperatorsView):
    scopes = needs(GET=Scope.OPERATOR)

    @extend_schema(operation_id="get_relocation", responses=RelocationDocument)
    def get(self, request: Request, relocation: str) -> Response:
        """One relocation, and how far it is."""
        return Response(show_relocation(_relocation(relocation)))


class PauseRelocationView(OperatorsView):
    scopes = needs(POST=Scope.OPERATOR)

    @extend_schema(operation_id="pause_relocation", request=Because, responses=RelocationDocument)
    def post(self, request: Request, relocation: str) -> Response:
        """Begins no further moves; those under way go on."""
        found = _relocation(relocation)
        form = self.read(Because)
        return Response(show_relocation(pause_relocation(relocation_id=found.id, **form, actor=self.actor)))


class ResumeRelocationView(OperatorsView):
    scopes = needs(POST=Scope.OPERATOR)

    @extend_schema(operation_id="resume_relocation", request=GoOn, responses=RelocationDocument)
    def post(self, request: Request, relocation: str) -> Response:
        """Begins moves again, perhaps at another pace."""
        found = _relocation(relocation)
        form = self.read(GoOn)
        return Response(show_relocation(resume_relocation(relocation_id=found.id, **form, actor=self.actor)))


class StopRelocationView(OperatorsView):
    scopes = needs(POST=Scope.OPERATOR)

    @extend_schema(operation_id="stop_relocation", request=Because, responses=RelocationDocument)
    def post(self, request: Request, relocation: str) -> Response:
        """Ends it: who has moved stays there. A cell that was drained stays CORDONED."""
        found = _relocation(relocation)
        form = self.read(Because)
        return Response(show_relocation(stop_relocation(relocation_id=found.id, **form, actor=self.actor)))


class TopologyView(OperatorsView):
    scopes = needs(GET=Scope.OPERATOR)

    @extend_schema(operation_id="get_topology", responses=TopologyDocument)
    def get(self, request: Request) -> Response:
        """Regions, cells and sites with headroom, use and lag, and whether each region can lose a cell."""
        return Response(show_map(map_of()))


class SuggestionsView(OperatorsView):
    scopes = needs(GET=Scope.OPERATOR)

    @extend_schema(operation_id="list_suggestions", responses=SuggestionsDocument)
    def get(self, request: Request) -> Response:
        """Which tenants should move where, and why, by what was measured in the last minutes."""
        items: list[Any] = hot_tenants()
        return Response(SuggestionsDocument({"items": items}).data)


class OwnersView(OperatorsView):
    scopes = needs(GET=Scope.OPERATOR)
    parameters = frozenset({"cell"})

    @extend_schema(
        operation_id="get_ownership",
        parameters=[OpenApiParameter("cell", str, description="This one alone.")],
        responses=OwnersDocument,
    )
    def get(self, request: Request) -> Response:
        """Who owns each cell and its tenants by the ownership store, and who disagrees: the store and the
        cells are asked now."""
        return Response(show_owners(ownership_map(cell=request.query_params.get("cell"))))
