"""Where a person arrives: the choice of a tenant."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect, render
from django.urls import Resolver404, resolve
from django.views.decorators.http import require_GET

from controlplane.tenants.models import Membership


@require_GET
def other_slash(request: HttpRequest, **_: str) -> HttpResponse:
    """The page of the same address with or without its last slash; 404 where there is none either."""
    here = request.path_info
    there = here.removesuffix("/") if here.endswith("/") else f"{here}/"
    try:
        found = resolve(there)
    except Resolver404:
        raise Http404 from None
    if found.url_name is None:
        raise Http404
    query = request.META.get("QUERY_STRING", "")
    return HttpResponseRedirect(f"{there}?{query}" if query else there)


@require_GET
@login_required
def choose(request: HttpRequest) -> HttpResponse:
    """The only tenant at once; operators' pages for operators; else a list."""
    memberships = list(
        Membership.objects.filter(user=request.user.pk).select_related("tenant").order_by("tenant__name")
    )
    if len(memberships) == 1 and "choose" not in request.GET:
        return redirect("console:overview", memberships[0].tenant.slug)
    if request.user.is_staff and not memberships and "choose" not in request.GET:
        return redirect("operators:cells")
    return render(request, "console/choose.html", {"memberships": memberships})
