"""/v1/admin/moves, and /v1/tenant/moves for owners where the installation lets them."""

from __future__ import annotations

import uuid
from typing import Any

from django.conf import settings
from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from cells.contract import ErrorCode, Scope
from controlplane.api.base import ApiView, ReasonMixin, Text
from controlplane.api.documents import Document, page_of
from controlplane.api.forms import Because, TrueOrFalse
from controlplane.api.idempotency import once
from controlplane.api.pagination import keyset_page
from controlplane.api.permissions import needs
from controlplane.api.problems import Problem
from controlplane.errors import NotFound, invalid
from controlplane.identity import decode
from controlplane.moves.actions import abort_move, start_move
from controlplane.moves.models import MOVE, TenantMove
from controlplane.moves.planning import Plan, plan_move, tenant_to_move
from controlplane.tenants.models import tenant_uuid


class NewMove(ReasonMixin):
    """Which tenant, and perhaps where to. `dry_run` shows the plan and moves nobody."""

    tenant_id = Text(max_length=64)
    cell = Text(required=False, max_length=63, help_text="left out: the cell with the most room")
    dry_run = TrueOrFalse(required=False, default=False)


class NewOwnMove(ReasonMixin):
    """Where to; left out: the cell with the most room."""

    cell = Text(required=False, max_length=63)
    dry_run = TrueOrFalse(required=False, default=False)


class PlanDocument(Document):
    """A move as it would begin. `promised`: runs a second promised on each cell, before and after."""

    tenant_id = serializers.CharField(source="tenant")
    source = serializers.CharField()
    destination = serializers.CharField()
    why = serializers.CharField()
    refused = serializers.DictField(child=serializers.CharField())
    promised = serializers.SerializerMethodField()

    def get_promised(self, plan: Plan) -> dict[str, dict[str, int]]:
        return {cell: {"before": a, "after": b} for cell, (a, b) in plan.promised.items()}


class StepDocument(Document):
    """A stay of a move in a state. `event`: what ended it."""

    attempt = serializers.IntegerField()
    state = serializers.CharField()
    began_at = serializers.DateTimeField()
    ended_at = serializers.DateTimeField(allow_null=True)
    event = serializers.CharField()
    why = serializers.CharField()


class MoveDocument(Document):
    """A move. `why` is what it does, or what it waits for; `pause_ms` how long the tenant was sealed."""

    move_id = serializers.CharField(source="public_id")
    tenant_id = serializers.CharField(source="tenant.public_id")
    source = serializers.CharField(source="source_id")
    destination = serializers.CharField(source="destination_id")
    state = serializers.CharField()
    why = serializers.CharField()
    choice = serializers.CharField()
    attempt = serializers.IntegerField()
    abort_requested = serializers.SerializerMethodField()
    progress = serializers.JSONField()
    pause_ms = serializers.SerializerMethodField()
    new_epoch = serializers.IntegerField(allow_null=True)
    started_by = serializers.CharField()
    reason = serializers.CharField()
    created_at = serializers.DateTimeField()
    changed_at = serializers.DateTimeField()
    finished_at = serializers.DateTimeField(allow_null=True)

    def get_abort_requested(self, move: TenantMove) -> bool:
        return move.abort_reason is not None

    def get_pause_ms(self, move: TenantMove) -> int | None:
        return move.facts.get("pause_ms")


_MOVE_PAGE = page_of(MoveDocument)


class OneMoveDocument(MoveDocument):
    """A move with its steps."""

    steps = serializers.SerializerMethodField()

    def get_steps(self, move: TenantMove) -> list[dict[str, Any]]:
        return [dict(StepDocument(step).data) for step in move.steps.order_by("id")]


def _show(move: TenantMove) -> dict[str, Any]:
    return dict(MoveDocument(move).data)


def _moves() -> QuerySet[TenantMove]:
    return TenantMove.objects.select_related("tenant")


def _move(text: str, tenant_id: uuid.UUID | None = None) -> TenantMove:
    found = decode(MOVE, text)
    moves = _moves() if tenant_id is None else _moves().filter(tenant=tenant_id)
    move = None if found is None else moves.filter(pk=found).first()
    if move is None:
        raise NotFound("no such move")
    return move


class _Starting(ApiView):
    #: Whether the cell that is named must be of the kind the tenant lives on.
    keep_kind = False

    def begin(self, request: Request, tenant_id: uuid.UUID, form: dict[str, Any], base: str) -> Response:
        """A plan, or a move under way."""
        cell = form.get("cell")
        if form["dry_run"]:
            plan = plan_move(tenant_to_move(tenant_id), cell=cell, keep_kind=self.keep_kind)
            return Response(PlanDocument(plan).data)

        def create() -> Response:
            move = start_move(
                tenant_id=tenant_id, cell=cell, keep_kind=self.keep_kind, actor=self.actor,
                reason=form["reason"],
            )  # fmt: skip
            return Response(_show(move), 202, headers={"Location": f"{base}/{move.public_id}"})

        return once(request, create)


class MovesView(_Starting):
    scopes = needs(GET=Scope.OPERATOR, POST=Scope.OPERATOR)
    needs_tenant = False
    parameters = frozenset({"limit", "cursor", "tenant_id", "cell", "state"})
    idempotent_post = True

    @extend_schema(operation_id="list_moves", responses=_MOVE_PAGE)
    def get(self, request: Request) -> Response:
        """Moves of tenants between cells, the newest first."""
        moves = _moves()
        if (named := request.query_params.get("tenant_id")) is not None:
            moves = moves.filter(tenant=tenant_uuid(named))
        if (state := request.query_params.get("state")) is not None:
            moves = moves.filter(state=state)
        if (cell := request.query_params.get("cell")) is not None:
            moves = moves.filter(source=cell) | moves.filter(destination=cell)
        return keyset_page(request, moves, ["created_at", "id"], _show, newest_first=True)

    @extend_schema(
        operation_id="start_move", request=NewMove, responses={200: PlanDocument, 202: MoveDocument}
    )
    def post(self, request: Request) -> Response:
        """Begins to move a tenant to another cell, while it works; with `dry_run` only says how."""
        form = self.read(NewMove)
        tenant_id = tenant_uuid(form["tenant_id"])
        if tenant_id is None:
            raise invalid("/tenant_id", "not a tenant's id")
        return self.begin(request, tenant_id, form, "/v1/admin/moves")


class MoveView(ApiView):
    scopes = needs(GET=Scope.OPERATOR)
    needs_tenant = False

    @extend_schema(operation_id="get_move", responses=OneMoveDocument)
    def get(self, request: Request, move: str) -> Response:
        """One move, with its steps."""
        return Response(OneMoveDocument(_move(move)).data)


class AbortMoveView(ApiView):
    scopes = needs(POST=Scope.OPERATOR)
    needs_tenant = False

    @extend_schema(operation_id="abort_move", request=Because, responses={202: MoveDocument})
    def post(self, request: Request, move: str) -> Response:
        """Has a move given up: the tenant stays where it is. Until HANDOFF only."""
        form = self.read(Because)
        found = abort_move(move_id=_move(move).id, actor=self.actor, reason=form["reason"])
        return Response(_show(found), 202)


def _owners_may() -> None:
    if not settings.OWNERS_MAY_MOVE:
        raise Problem(403, ErrorCode.FORBIDDEN, "Moves are made by the operators of this installation.")


class OwnMovesView(_Starting):
    keep_kind = True
    scopes = needs(GET=Scope.ADMIN, POST=Scope.ADMIN)
    parameters = frozenset({"limit", "cursor"})
    idempotent_post = True

    @extend_schema(operation_id="list_own_moves", responses=_MOVE_PAGE)
    def get(self, request: Request) -> Response:
        """The tenant's moves between cells, the newest first."""
        moves = _moves().filter(tenant=self.tenant_id)
        return keyset_page(request, moves, ["created_at", "id"], _show, newest_first=True)

    @extend_schema(
        operation_id="start_own_move", request=NewOwnMove, responses={200: PlanDocument, 202: MoveDocument}
    )
    def post(self, request: Request) -> Response:
        """Begins to move the tenant to another cell, where the installation lets tenants do so."""
        form = self.read(NewOwnMove)
        _owners_may()
        return self.begin(request, self.tenant_id, form, "/v1/tenant/moves")


class OwnMoveView(ApiView):
    scopes = needs(GET=Scope.ADMIN)

    @extend_schema(operation_id="get_own_move", responses=OneMoveDocument)
    def get(self, request: Request, move: str) -> Response:
        """One of the tenant's moves, with its steps."""
        return Response(OneMoveDocument(_move(move, self.tenant_id)).data)


class AbortOwnMoveView(ApiView):
    scopes = needs(POST=Scope.ADMIN)

    @extend_schema(operation_id="abort_own_move", request=Because, responses={202: MoveDocument})
    def post(self, request: Request, move: str) -> Response:
        """Has a move of the tenant given up, where the installation lets tenants do so."""
        form = self.read(Because)
        found = _move(move, self.tenant_id)
        _owners_may()
        return Response(_show(abort_move(move_id=found.id, actor=self.actor, reason=form["reason"])), 202)
