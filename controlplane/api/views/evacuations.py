"""/v1/admin/evacuations, and the sites of cells with what may be asked of them."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from cells.contract import Scope
from controlplane.api.base import ReasonMixin, Text
from controlplane.api.documents import page_of
from controlplane.api.evacuation_documents import (
    EvacuationDocument,
    EvacuationPlanDocument,
    OneEvacuationDocument,
    SiteStatusDocument,
    SiteStatusesDocument,
    WishAnswerDocument,
    WishPlanDocument,
    show_evacuation,
    show_plan,
    show_wish_plan,
)
from controlplane.api.forms import Because, TrueOrFalse, WholeNumber
from controlplane.api.idempotency import once
from controlplane.api.pagination import keyset_page
from controlplane.api.permissions import needs
from controlplane.api.topology_documents import SiteDocument
from controlplane.api.views.relocations import OperatorsView
from controlplane.api.views.topology import found_cell
from controlplane.errors import NotFound, invalid
from controlplane.evacuations.actions import (
    MOST_AT_ONCE,
    abort_evacuation,
    pause_evacuation,
    plan_evacuation,
    resume_evacuation,
    start_evacuation,
)
from controlplane.evacuations.keepers import statuses_of
from controlplane.evacuations.models import EVACUATION, Evacuation, EvacuationKind
from controlplane.evacuations.wishing import VERBS, ask_wish, plan_wish
from controlplane.identity import decode
from controlplane.topology.actions.sites import register_site
from controlplane.topology.models import Site

_PACE = "cells under way at the same time"


class NewEvacuation(ReasonMixin):
    """Which region is left or come back to. `to`: regions wanted for some cells."""

    region = Text(max_length=63)
    kind = serializers.ChoiceField(
        EvacuationKind.values, required=False, default=EvacuationKind.EVACUATE.value
    )
    to = serializers.DictField(child=Text(max_length=63), required=False, default=dict)
    at_once = WholeNumber(required=False, default=1, min_value=1, max_value=MOST_AT_ONCE, help_text=_PACE)
    calm_lag_ms = WholeNumber(
        required=False, default=2_000, min_value=1, max_value=600_000,
        help_text="a cell that was handed over has to start its runs at most so late",
    )  # fmt: skip
    calm_seconds = WholeNumber(
        required=False, default=10, min_value=0, max_value=3_600, help_text="for so long"
    )
    override = TrueOrFalse(
        required=False, default=False, help_text="even where the plan has a `refusal`; it is in the audit log"
    )


class GoOnEvacuating(ReasonMixin):
    """Perhaps at another pace."""

    at_once = WholeNumber(required=False, min_value=1, max_value=MOST_AT_ONCE, help_text=_PACE)


class AbortEvacuation(ReasonMixin):
    """`hand_back`: cells that were handed over come back."""

    hand_back = TrueOrFalse(required=False, default=False)


class NewSite(ReasonMixin):
    """Where a site's keeper answers. `url`: of the cell's API; left out, the addresses that are known."""

    keeper_url = Text(max_length=200)
    url = Text(required=False, max_length=200)


class Wish(ReasonMixin):
    """`epoch`: as the plan showed it; refused where the cell is under another one. `confirm`: the plan's
    `confirmation`. Both are needed where something can be lost."""

    epoch = WholeNumber(required=False, min_value=0)
    confirm = Text(required=False, default="", allow_blank=True, max_length=200)


class EvacuationsView(OperatorsView):
    parameters = frozenset({"limit", "cursor", "region", "state"})
    idempotent_post = True

    @extend_schema(operation_id="list_evacuations", responses=page_of(EvacuationDocument))
    def get(self, request: Request) -> Response:
        """Regions that are or were left or come back to, the newest first."""
        found = Evacuation.objects.all()
        for name in ("region", "state"):
            if (value := request.query_params.get(name)) is not None:
                found = found.filter(**{name: value})
        return keyset_page(request, found, ["created_at", "id"], show_evacuation, newest_first=True)

    @extend_schema(
        operation_id="start_evacuation", request=NewEvacuation, responses={202: EvacuationDocument}
    )
    def post(self, request: Request) -> Response:
        """Hands the region's cells over to their other sites, a few at a time, or brings those back that were
        made there. Refused with the numbers where a region could then not lose a cell."""
        form = self.read(NewEvacuation)

        def create() -> Response:
            made = start_evacuation(**form, actor=self.actor)
            return Response(
                show_evacuation(made), 202, headers={"Location": f"/v1/admin/evacuations/{made.public_id}"}
            )

        return once(request, create)


class EvacuationPlanView(OperatorsView):
    scopes = needs(GET=Scope.OPERATOR)
    parameters = frozenset({"region", "kind"})

    @extend_schema(
        operation_id="plan_evacuation",
        parameters=[
            OpenApiParameter("region", str, required=True),
            OpenApiParameter("kind", str, enum=EvacuationKind.values, description="EVACUATE, if absent."),
        ],
        responses=EvacuationPlanDocument,
    )
    def get(self, request: Request) -> Response:
        """Which cells would go where, what the regions would carry then, who would stay and why. The
        ownership store and the keepers are asked now; nothing is moved."""
        region = request.query_params.get("region")
        if region is None:
            raise invalid("/region", "name a region")
        kind = request.query_params.get("kind", EvacuationKind.EVACUATE.value)
        return Response(show_plan(plan_evacuation(region=region, kind=kind)))


def _evacuation(text: str) -> Evacuation:
    uuid = decode(EVACUATION, text)
    found = None if uuid is None else Evacuation.objects.filter(pk=uuid).first()
    if found is None:
        raise NotFound("no such evacuation")
    return found


class EvacuationView(OperatorsView):
    scopes = needs(GET=Scope.OPERATOR)

    @extend_schema(operation_id="get_evacuation", responses=OneEvacuationDocument)
    def get(self, request: Request, evacuation: str) -> Response:
        """One evacuation, with its cells, how far each is, and what it waits for."""
        return Response(OneEvacuationDocument(_evacuation(evacuation)).data)


class PauseEvacuationView(OperatorsView):
    scopes = needs(POST=Scope.OPERATOR)

    @extend_schema(operation_id="pause_evacuation", request=Because, responses=EvacuationDocument)
    def post(self, request: Request, evacuation: str) -> Response:
        """Begins no further cell; a handover that was asked for gets to its end."""
        found = _evacuation(evacuation)
        form = self.read(Because)
        return Response(show_evacuation(pause_evacuation(evacuation_id=found.id, **form, actor=self.actor)))


class ResumeEvacuationView(OperatorsView):
    scopes = needs(POST=Scope.OPERATOR)

    @extend_schema(operation_id="resume_evacuation", request=GoOnEvacuating, responses=EvacuationDocument)
    def post(self, request: Request, evacuation: str) -> Response:
        """Goes on, perhaps at another pace."""
        found = _evacuation(evacuation)
        form = self.read(GoOnEvacuating)
        return Response(show_evacuation(resume_evacuation(evacuation_id=found.id, **form, actor=self.actor)))


class AbortEvacuationView(OperatorsView):
    scopes = needs(POST=Scope.OPERATOR)

    @extend_schema(operation_id="abort_evacuation", request=AbortEvacuation, responses=EvacuationDocument)
    def post(self, request: Request, evacuation: str) -> Response:
        """Gives it up: cells that were not handed over stay; with `hand_back` the others come back. Again,
        without it: what has not come back yet stays where it is."""
        found = _evacuation(evacuation)
        form = self.read(AbortEvacuation)
        return Response(show_evacuation(abort_evacuation(evacuation_id=found.id, **form, actor=self.actor)))


class SitesView(OperatorsView):
    scopes = needs(GET=Scope.OPERATOR)

    @extend_schema(operation_id="list_sites", responses=SiteStatusesDocument)
    def get(self, request: Request, name: str) -> Response:
        """A cell's sites: role, lease and lag, as their keepers tell of them now."""
        sites = list(Site.objects.filter(cell=found_cell(name).name).order_by("region"))
        statuses = statuses_of(sites)
        owner = next((one for one in statuses if one.owns), None)
        items: list[dict[str, Any]] = [
            {
                **{field: getattr(one, field) for field in _OF_STATUS},
                "keeper_url": site.keeper_url,
                "owner": bool(one.owner) and one.owner == one.region,
                "behind_bytes": None if owner is None else owner.behind(one.region),
            }
            for site, one in zip(sites, statuses, strict=True)
        ]
        return Response(SiteStatusesDocument({"items": items}).data)


_OF_STATUS = [n for n in SiteStatusDocument().fields if n not in ("keeper_url", "owner", "behind_bytes")]


class SiteView(OperatorsView):
    scopes = needs(PUT=Scope.OPERATOR)

    @extend_schema(operation_id="register_site", request=NewSite, responses=SiteDocument)
    def put(self, request: Request, name: str, region: str) -> Response:
        """Makes a cell's presence in a region known, with its keeper's address."""
        form = self.read(NewSite)
        return Response(SiteDocument(register_site(cell=name, region=region, **form, actor=self.actor)).data)


class SitePlanView(OperatorsView):
    scopes = needs(GET=Scope.OPERATOR)
    parameters = frozenset({"verb"})

    @extend_schema(
        operation_id="plan_site_wish",
        parameters=[OpenApiParameter("verb", str, enum=list(VERBS), required=True)],
        responses=WishPlanDocument,
    )
    def get(self, request: Request, name: str, region: str) -> Response:
        """What a handover to this site, its rejoining, an override or giving it up would do, and what can be
        lost."""
        verb = request.query_params.get("verb", "")
        return Response(show_wish_plan(plan_wish(cell=name, region=region, verb=verb)))


class _WishView(OperatorsView):
    scopes = needs(POST=Scope.OPERATOR)
    verb = ""

    def asked(self, name: str, region: str) -> Response:
        form = self.read(Wish)
        said = ask_wish(cell=name, region=region, verb=self.verb, **form, actor=self.actor)
        return Response(WishAnswerDocument({"said": said}).data, 202)


class HandOverView(_WishView):
    verb = "hand-over"

    @extend_schema(operation_id="hand_over_cell", request=Wish, responses={202: WishAnswerDocument})
    def post(self, request: Request, name: str, region: str) -> Response:
        """This region becomes the cell's owner, with nothing lost, or everything stays as it is."""
        return self.asked(name, region)


class RejoinView(_WishView):
    verb = "rejoin"

    @extend_schema(operation_id="rejoin_site", request=Wish, responses={202: WishAnswerDocument})
    def post(self, request: Request, name: str, region: str) -> Response:
        """A site that went on alone follows the owner again; what only it did leaves its database."""
        return self.asked(name, region)


class OverrideView(_WishView):
    verb = "override"

    @extend_schema(operation_id="override_votes", request=Wish, responses={202: WishAnswerDocument})
    def post(self, request: Request, name: str, region: str) -> Response:
        """A takeover goes on without the votes that are missing, and loses what only those sites have."""
        return self.asked(name, region)


class GiveUpView(_WishView):
    verb = "give-up"

    @extend_schema(operation_id="give_up_site", request=Wish, responses={202: WishAnswerDocument})
    def post(self, request: Request, name: str, region: str) -> Response:
        """What only this site has is not waited for any more: STRICT opens in the cell without it."""
        return self.asked(name, region)
