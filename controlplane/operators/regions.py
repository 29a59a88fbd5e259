"""Regions × cells × sites as their keepers tell of them now; what is asked of one site."""

from __future__ import annotations

from dataclasses import dataclass

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect

from controlplane.adminsite import operator
from controlplane.errors import Refused
from controlplane.evacuations.keepers import SiteStatus, statuses_of
from controlplane.evacuations.looking import passive_regions
from controlplane.evacuations.models import Evacuation
from controlplane.evacuations.wishing import VERBS, ask_wish, plan_wish
from controlplane.operators.pages import operator_page, page
from controlplane.rehearsals.models import Rehearsal
from controlplane.topology.models import Cell, CellState, Region, Site

_NEWEST = 20
#: The map is asked for again after so many seconds.
_AGAIN_SECONDS = 5
_DOES = {
    "hand-over": "Hand over to",
    "rejoin": "Have follow again",
    "override": "Go on without votes in",
    "give-up": "Wait no more for",
}


@dataclass(frozen=True, kw_only=True)
class Standing:
    """One site on the map; without a status the cell has none in that region."""

    region: str
    status: SiteStatus | None
    behind: int | None = None

    @property
    def role(self) -> str:
        """In a word."""
        if self.status is None:
            return "no site"
        if self.status.away:
            return "silent"
        if self.status.act == "STRAYED":
            return "strayed"
        if self.status.owner == self.region:
            return "owner"
        return "standby" if self.status.streaming else "behind"

    @property
    def health(self) -> str:
        """good, wait or bad."""
        if self.status is None:
            return "dim"
        if self.status.away or self.role == "strayed":
            return "bad"
        return "good" if self.status.ready else "wait"

    @property
    def verbs(self) -> list[str]:
        """What may be asked of it now."""
        if self.status is None or self.status.away or (self.role == "owner" and self.status.owns):
            return []
        if self.role == "strayed":
            return ["rejoin"]
        return ["override"] if self.status.missing else ["hand-over"]


@dataclass(frozen=True, kw_only=True)
class MappedSites:
    """A cell's row of the map."""

    cell: Cell
    standings: list[Standing]


def sites_map(regions: list[str]) -> list[MappedSites]:
    """All cells that are not retired. Keepers are asked, all at the same time."""
    cells = list(Cell.objects.exclude(state=CellState.RETIRED).order_by("name").prefetch_related("sites"))
    sites: list[Site] = [site for cell in cells for site in cell.sites.all() if site.keeper_url]
    told = dict(zip([(s.cell_id, s.region_id) for s in sites], statuses_of(sites), strict=True))
    rows = []
    for cell in cells:
        own = {site.region_id: told.get((cell.name, site.region_id)) for site in cell.sites.all()}
        owner = next((one for one in own.values() if one is not None and one.owns), None)
        rows.append(
            MappedSites(
                cell=cell,
                standings=[
                    Standing(
                        region=region,
                        status=(own[region] or SiteStatus(region=region, away="no keeper of it is known"))
                        if region in own
                        else None,
                        behind=None if owner is None else owner.behind(region),
                    )
                    for region in regions
                ],
            )
        )
    return rows


@operator_page()
def region_map(request: HttpRequest) -> HttpResponse:
    """GET /admin/pages/regions/ asks every keeper."""
    regions = list(Region.objects.order_by("name").values_list("name", flat=True))
    answer = page(
        request,
        "regions.html",
        "Regions",
        regions=regions,
        passive=passive_regions(),
        rows=sites_map(regions),
        evacuations=Evacuation.objects.order_by("-created_at")[:_NEWEST],
        rehearsals=Rehearsal.objects.order_by("-created_at")[:_NEWEST],
    )
    answer["Refresh"] = str(_AGAIN_SECONDS)
    return answer


@operator_page("GET", "POST")
def site_wish(request: HttpRequest, name: str, region: str, verb: str) -> HttpResponse:
    """GET /admin/pages/cells/<name>/sites/<region>/<verb> shows what it would do; POST asks the site."""
    if verb not in VERBS or not Site.objects.filter(cell=name, region=region).exists():
        raise Http404
    if request.method == "POST":
        return _asked(request, name, region, verb)
    try:
        plan = plan_wish(cell=name, region=region, verb=verb)
    except Refused as refused:
        messages.error(request, f"There is no plan: {refused}")
        return redirect("operators:regions")
    title = f"{_DOES[verb]} {region}: {name}"
    return page(request, "site_wish.html", title, plan=plan, does=f"{_DOES[verb]} {region}")


def _asked(request: HttpRequest, name: str, region: str, verb: str) -> HttpResponse:
    given = request.POST
    epoch = given.get("epoch", "")
    try:
        said = ask_wish(
            cell=name,
            region=region,
            verb=verb,
            epoch=int(epoch) if epoch.isascii() and epoch.isdecimal() and len(epoch) < 17 else None,
            confirm=given.get("confirm", "")[:200],
            actor=operator(request),
            reason=given.get("reason", "").strip()[:300],
        )
    except Refused as refused:
        messages.error(request, f"Nothing was asked for: {refused}")
        return redirect("operators:site-wish", name, region, verb)
    messages.success(request, f"The site's keeper heard it: {said}.")
    return redirect("operators:regions")
