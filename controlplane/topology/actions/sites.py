"""Sites of cells in further regions: where a cell would work if it were handed over."""

from __future__ import annotations

from django.core.exceptions import ValidationError
from django.core.validators import URLValidator
from django.db import transaction

from controlplane.actors import Actor
from controlplane.addresses import split
from controlplane.errors import Fault, Invalid, NotFound
from controlplane.events.models import Change
from controlplane.events.recording import publish, record
from controlplane.locks import lock_cell
from controlplane.topology.actions.regions import register_region
from controlplane.topology.models import Cell, Site

_URL = URLValidator(schemes=["http", "https"])


def _is_url(text: str) -> bool:
    try:
        # Django's validator wants a dotted name; hosts inside a network have none.
        dotted = "." in text or "://" not in text
        _URL(text if dotted else text.replace("://", "://host.", 1))
    except ValidationError:
        return False
    return True


@transaction.atomic
def register_site(
    *, cell: str, region: str, keeper_url: str, url: str | None = None, actor: Actor, reason: str
) -> Site:
    """Makes a cell's presence in a region known, with its keeper's address. `url`: where the cell's API
    answers; without one it is that of the site that is primary, which lists the addresses of all regions.
    Again with the same region: addresses are updated. A new site is not primary: the owner is elsewhere."""
    if not Cell.objects.filter(pk=cell).exists():
        raise NotFound(f"no cell {cell}")
    faults = [] if _is_url(keeper_url) else [Fault(pointer="/keeper_url", detail="not an http or https URL")]
    addresses = split(url) if url is not None else []
    if url is not None and not (addresses and all(map(_is_url, addresses))):
        faults.append(Fault(pointer="/url", detail="http or https URLs, behind commas"))
    if faults:
        raise Invalid(faults)
    register_region(name=region, actor=actor, reason=reason)
    found = lock_cell(cell)
    if url is None:
        url = Site.objects.filter(cell=found, primary=True).values_list("url", flat=True).first() or ""
    else:
        url = ",".join(addresses)
    site = Site.objects.filter(cell=found, region_id=region).first()
    before = None if site is None else {"url": site.url, "keeper_url": site.keeper_url}
    after = {"url": url, "keeper_url": keeper_url}
    if site is None:
        site = Site(cell=found, region_id=region, primary=False)
    elif before == after:
        return site
    site.url, site.keeper_url = url, keeper_url
    site.save()
    publish(Change.Kind.CELL, cell)
    record(
        action="cell.register_site", subject=cell, tenant_id=None, actor=actor, reason=reason,
        before=before, after={**after, "region": region},
    )  # fmt: skip
    return site
