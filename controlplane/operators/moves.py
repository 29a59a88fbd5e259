"""Moves of tenants between cells: a plan first, then how far it is, and giving it up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect

from controlplane.adminsite import operator
from controlplane.errors import Refused
from controlplane.identity import decode
from controlplane.moves.actions import abort_move, start_move
from controlplane.moves.machine import ABORTABLE, ENDED, State
from controlplane.moves.models import MOVE, TenantMove
from controlplane.moves.planning import Plan, plan_move, tenant_to_move
from controlplane.operators.pages import act, operator_page, page
from controlplane.tenants.models import Tenant
from controlplane.topology.models import Cell, CellState

_NEWEST = 100
#: While a move is under way its page is asked for again after so many seconds.
_AGAIN_SECONDS = 2
_WAY = (
    *(State.PREPARE, State.COPY, State.CATCH_UP, State.BARRIER, State.SEAL, State.HANDOFF),
    *(State.VERIFY, State.CLEANUP, State.DONE),
)


@dataclass(frozen=True, kw_only=True)
class Sight:
    """A move as a page shows it."""

    move: TenantMove

    @property
    def health(self) -> str:
        """good, wait or bad."""
        if self.move.at is State.DONE:
            return "good"
        return "bad" if self.move.at in (State.ABORTED, State.ABORTING) else "wait"

    @property
    def share(self) -> float | None:
        """Rows copied, in percent."""
        total = self.move.progress.get("rows_total")
        return round(100 * self.move.progress.get("rows", 0) / total, 1) if total else None

    @property
    def way(self) -> list[tuple[str, str]]:
        """The states in order, each passed, present or to come."""
        at = _WAY.index(self.move.at) if self.move.at in _WAY else -1
        return [
            (state.value, "passed" if n < at else "present" if n == at else "to come")
            for n, state in enumerate(_WAY)
        ]

    @property
    def abortable(self) -> bool:
        return self.move.at in ABORTABLE and self.move.abort_reason is None


def _moves() -> Any:
    return TenantMove.objects.select_related("tenant")


@operator_page("GET", "POST")
def move_list(request: HttpRequest) -> HttpResponse:
    """GET /admin/pages/moves/?tenant=&cell= shows moves and a plan; POST begins one."""
    if request.method == "POST":
        return _begun(request)
    asked = {name: request.GET.get(name, "").strip()[:63] for name in ("tenant", "cell")}
    plan: Plan | None = None
    if asked["tenant"]:
        try:
            plan = plan_move(tenant_to_move(_tenant(asked["tenant"])), cell=asked["cell"] or None)
        except Refused as refused:
            messages.error(request, f"There is no plan: {refused}")
    return page(
        request,
        "moves.html",
        "Moves",
        moves=[Sight(move=move) for move in _moves().order_by("-created_at")[:_NEWEST]],
        asked=asked,
        plan=plan,
        cells=Cell.objects.exclude(state=CellState.RETIRED).order_by("region", "name"),
    )


def _tenant(slug: str) -> object:
    return Tenant.objects.filter(slug=slug).values_list("id", flat=True).first()


def _begun(request: HttpRequest) -> HttpResponse:
    slug = request.POST.get("tenant", "").strip()[:63]
    tenant_id = Tenant.objects.filter(slug=slug).values_list("id", flat=True).first()
    if tenant_id is None:
        messages.error(request, "Nothing was begun: there is no such tenant.")
        return redirect("operators:moves")
    try:
        move = start_move(
            tenant_id=tenant_id,
            cell=request.POST.get("cell", "").strip()[:63] or None,
            actor=operator(request),
            reason=request.POST.get("reason", "").strip()[:300],
        )
    except Refused as refused:
        messages.error(request, f"Nothing was begun: {refused}")
        return redirect("operators:moves")
    messages.success(request, f"{slug} is on its way from {move.source_id} to {move.destination_id}.")
    return redirect("operators:move", move.public_id)


def _move(text: str) -> TenantMove:
    found = decode(MOVE, text)
    move: TenantMove | None = None if found is None else _moves().filter(pk=found).first()
    if move is None:
        raise Http404
    return move


@operator_page()
def one_move(request: HttpRequest, move: str) -> HttpResponse:
    """GET /admin/pages/moves/<id>/"""
    found = _move(move)
    answer = page(
        request,
        "move.html",
        f"{found.tenant.slug}: {found.source_id} to {found.destination_id}",
        sight=Sight(move=found),
        steps=found.steps.order_by("-id")[:100],
    )
    if found.at not in ENDED:
        answer["Refresh"] = str(_AGAIN_SECONDS)
    return answer


@operator_page("GET", "POST")
def move_abort(request: HttpRequest, move: str) -> HttpResponse:
    """GET /admin/pages/moves/<id>/abort asks, POST has it given up."""
    found = _move(move)
    if request.method == "POST":
        act(
            request,
            abort_move,
            f"The move is given up; {found.tenant.slug} stays on {found.source_id}.",
            move_id=found.id,
            reason=request.POST.get("reason", "").strip()[:300],
        )
        return redirect("operators:move", found.public_id)
    return page(
        request, "move_abort.html", f"Give up the move of {found.tenant.slug}", sight=Sight(move=found)
    )
