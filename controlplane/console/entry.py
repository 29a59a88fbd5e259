"""Where a person arrives: the choice of a tenant."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET

from controlplane.tenants.models import Membership


@require_GET
@login_required
def choose(request: HttpRequest) -> HttpResponse:
    """The only tenant at once; else a list."""
    memberships = list(
        Membership.objects.filter(user=request.user.pk).select_related("tenant").order_by("tenant__name")
    )
    if len(memberships) == 1 and "choose" not in request.GET:
        return redirect("console:overview", memberships[0].tenant.slug)
    return render(request, "console/choose.html", {"memberships": memberships})
