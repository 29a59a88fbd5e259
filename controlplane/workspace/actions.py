"""Changes of the workspace's settings. The tenant's schema must be active (`middleware.py`)."""

from __future__ import annotations

import uuid

from django.db import transaction

from controlplane.actors import Actor
from controlplane.errors import Fault, Invalid, one_line
from controlplane.events.recording import record
from controlplane.identity import TENANT, encode
from controlplane.tenants.actions.accounts import zone_faults
from controlplane.workspace.models import WorkspaceSettings

_THEMES = ("auto", "light", "dark")


@transaction.atomic
def set_workspace(
    *,
    tenant_id: uuid.UUID,
    display_name: str,
    timezone: str,
    theme: str,
    actor: Actor,
    reason: str,
) -> WorkspaceSettings:
    """Sets how the console looks to everybody in the workspace who chose nothing else."""
    faults = []
    if len(display_name) > 120:
        faults.append(Fault(pointer="/display_name", detail="at most 120 characters"))
    if not one_line(display_name):
        faults.append(Fault(pointer="/display_name", detail="no control characters"))
    faults += zone_faults(timezone or "none", "/timezone")
    if theme not in _THEMES:
        faults.append(Fault(pointer="/theme", detail=f"one of {', '.join(_THEMES)}"))
    if faults:
        raise Invalid(faults)
    settings = WorkspaceSettings.objects.select_for_update().first() or WorkspaceSettings()
    wanted = {"display_name": display_name, "timezone": timezone, "theme": theme}
    changed = {name: value for name, value in wanted.items() if getattr(settings, name) != value}
    if not changed:
        return settings
    before = {name: getattr(settings, name) for name in changed}
    for name, value in changed.items():
        setattr(settings, name, value)
    settings.save()
    record(
        action="workspace.update", subject=encode(TENANT, tenant_id), tenant_id=tenant_id, actor=actor,
        reason=reason, before=before, after=changed,
    )  # fmt: skip
    return settings
