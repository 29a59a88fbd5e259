"""Events in words, for mails and pages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from controlplane.console.happenings import happening
from controlplane.notifications.kinds import BY_NAME, Origin, says
from controlplane.notifications.models import NotificationEvent


def sentence(event: NotificationEvent) -> str:
    """What happened, in one line."""
    kind = BY_NAME.get(event.kind)
    if kind is not None and kind.origin is Origin.CELL:
        said = happening(
            {"type": event.kind, "subject": event.subject, "data": event.data, "at": ""}, people={}
        )
        return _one_line(f"{said.about} {said.what}")
    about = _about(event.data)
    return _one_line(f"{says(event.kind)[:1].upper()}{says(event.kind)[1:]}{f': {about}' if about else ''}")


def _about(data: Mapping[str, Any]) -> str:
    after = data.get("after") if isinstance(data.get("after"), Mapping) else data
    parts = [
        f"{name.replace('_', ' ')} {value}"
        for name, value in (after or {}).items()
        if isinstance(value, str | int) and not isinstance(value, bool) and name not in ("before", "reason")
    ]
    if data.get("reason"):
        parts.append(str(data["reason"]))
    return ", ".join(parts[:5])


def _one_line(text: str) -> str:
    return " ".join(text.split())[:300]
