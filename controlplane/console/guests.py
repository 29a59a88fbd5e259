"""Ending an operator's visit, from the banner that announces it."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from controlplane.adminsite import operator
from controlplane.operators.support import end_visit
from controlplane.tenants.models import Tenant


@require_POST
@login_required
def leave(request: HttpRequest, slug: str) -> HttpResponse:
    """POST /support/<slug>/end"""
    tenant = Tenant.objects.filter(slug=slug).first()
    if tenant is None or not request.user.is_staff:
        raise Http404
    if end_visit(tenant_id=tenant.id, operator=request.user, actor=operator(request), reason=""):
        messages.success(request, f"You have left {tenant.name}.")
    return redirect("operators:tenant", slug)
