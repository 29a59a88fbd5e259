"""What settings pages share: faults placed at fields, answers with a link, pages that ask first."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.contrib import messages
from django.core.cache import cache
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html

from controlplane.console.visit import Visit
from controlplane.errors import Invalid, Refused

_TOKEN_SECONDS = 24 * 3600


def first_use(request: HttpRequest, token: str) -> bool:
    """Whether a form is sent for the first time: a second click must not make a second key. Of several
    requests at once exactly one is the first."""
    return bool(token) and bool(cache.add(f"key-form:{request.user.pk}:{token}", 1, timeout=_TOKEN_SECONDS))


def not_used(request: HttpRequest, token: str) -> None:
    """The form may be sent again: what it asked for was not done."""
    cache.delete(f"key-form:{request.user.pk}:{token}")


def for_people(refused: Refused) -> str:
    """A refusal in the words of the pages: what the API calls a tenant is a workspace here."""
    return re.sub(r"\btenant(s?)\b", r"workspace\1", str(refused))


@dataclass(kw_only=True)
class Form:
    """What was typed, and what is wrong with it: at fields, and in general."""

    values: Mapping[str, Any] = field(default_factory=dict)
    faults: dict[str, list[str]] = field(default_factory=dict)
    general: list[str] = field(default_factory=list)

    @classmethod
    def refused(cls, values: Mapping[str, Any], refused: Refused, *, fields: Sequence[str]) -> Form:
        """A use-case's refusal, its faults at the fields they belong to."""
        form = cls(values=values)
        if not isinstance(refused, Invalid):
            said = for_people(refused)
            form.general.append(f"{said[:1].upper()}{said[1:]}.")
            return form
        for fault in refused.faults:
            name = fault.pointer.strip("/").split("/")[0]
            if name in fields:
                form.faults.setdefault(name, []).append(fault.detail)
            else:
                form.general.append(f"{name} {fault.detail}".strip())
        return form


def done(visit: Visit, text: str, *args: object, link: tuple[str, str] | None = None) -> None:
    """Says what was done; `link` is (address, word)."""
    said = format_html(text, *args) if args else text
    if link is not None:
        said = format_html('{} <a href="{}">{}</a>', said, *link)
    messages.success(visit.request, said)


def not_done(visit: Visit, refused: Refused) -> None:
    """Says why nothing was done."""
    text = for_people(refused)
    messages.error(visit.request, f"Nothing was changed: {text}{'' if text.endswith('.') else '.'}")


def ask(
    visit: Visit,
    *,
    title: str,
    points: Sequence[str],
    verb: str,
    back: str,
    keep: str,
    section: str = "settings",
    danger: bool = True,
    **more: Any,
) -> HttpResponse:
    """A page, or the body of a dialog, that says what an act will touch before it is done."""
    part = visit.request.htmx  # type: ignore[attr-defined]
    return visit.page(
        "console/settings/confirm_part.html" if part else "console/settings/confirm.html",
        title=title, points=points, verb=verb, back=back, keep=keep, section=section, danger=danger, **more,
    )  # fmt: skip
