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
    """The only tenant at once; operators' pages for operators; else a list."""
    memberships = list(
        Membership.objects.filter(user=request.user.pk).select_related("tenant").order_by("tenant__name")
    )
    if len(memberships) == 1 and "choose" not in request.GET:
        return redirect("console:overview", memberships[0].tenant.slug)
    if request.user.is_staff and not memberships and "choose" not in request.GET:
        return redirect("operators:cells")
    return render(request, "console/choose.html", {"memberships": memberships})
