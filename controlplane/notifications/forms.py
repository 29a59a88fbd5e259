"""What a page's form says about a rule. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from django.http import QueryDict

from controlplane.notifications.kinds import Kind, offered
from controlplane.notifications.models import Channel, NotificationRule
from controlplane.notifications.rules import Wanted

#: What pages offer: minutes, and words for them.
DIGESTS = ((0, "each event at once"), (5, "every 5 minutes"), (15, "every 15 minutes"), (60, "every hour"),
           (1440, "once a day"))  # fmt: skip
#: Names of the form's fields, as faults point to them.
FIELDS = ("name", "kinds", "filters", "channel", "url", "emails", "digest_minutes")
#: What a new rule begins with.
USUAL_KINDS = ("run.dead_lettered", "target.broken", "task_queue.no_worker", "workflow.compensation_stuck")
_BETWEEN = re.compile(r"[\s,;]+")


def words(text: str) -> list[str]:
    """Words of a field, apart by commas, spaces or lines."""
    return [word for word in _BETWEEN.split(text.strip()) if word]


def groups(*, operators: bool) -> list[tuple[str, list[Kind]]]:
    """Kinds under their headings; a heading's kinds stand together."""
    order = {kind.group: n for n, kind in reversed(list(enumerate(offered(operators=operators))))}
    kinds = sorted(offered(operators=operators), key=lambda kind: order[kind.group])
    return [(group, list(those)) for group, those in groupby(kinds, key=lambda kind: kind.group)]


def typed(post: QueryDict) -> dict[str, Any]:
    """What was typed, as the page shows it again."""
    return {
        **{
            name: post.get(name, "").strip()
            for name in ("name", "channel", "url", "name_prefix", "tags", "target_ids", "tenant_ids",
                         "digest_minutes")
        },
        "kinds": post.getlist("kinds"),
        "emails": post.getlist("emails"),
        "enabled": "enabled" in post,
    }  # fmt: skip


def wanted(values: Mapping[str, Any]) -> Wanted:
    """The rule that was typed. A channel's own fields count only for it."""
    digest = str(values["digest_minutes"])
    channel = str(values["channel"])
    emails: Sequence[str] = [email for chosen in values["emails"] for email in words(chosen)]
    return Wanted(
        name=values["name"],
        kinds=values["kinds"],
        filters={
            "name_prefix": values["name_prefix"],
            **{name: words(values[name]) for name in ("tags", "target_ids", "tenant_ids") if values[name]},
        },
        channel=channel,
        url=values["url"] if channel == Channel.WEBHOOK else "",
        emails=emails if channel == Channel.EMAIL else [],
        digest_minutes=int(digest) if digest.isascii() and digest.isdigit() and len(digest) < 6 else -1,
        enabled=values["enabled"],
    )


def stored(rule: NotificationRule) -> dict[str, Any]:
    """A rule as its form shows it."""
    return {
        "name": rule.name, "kinds": rule.kinds, "channel": rule.channel, "url": rule.url,
        "emails": rule.emails, "digest_minutes": str(rule.digest_minutes), "enabled": rule.enabled,
        "name_prefix": rule.filters.get("name_prefix", ""),
        **{name: ", ".join(rule.filters.get(name, ())) for name in ("tags", "target_ids", "tenant_ids")},
    }  # fmt: skip


def usual() -> dict[str, Any]:
    """A new rule's form."""
    return {
        "name": "", "kinds": list(USUAL_KINDS), "channel": Channel.WEBHOOK.value, "url": "", "emails": [],
        "digest_minutes": "0", "enabled": True, "name_prefix": "", "tags": "", "target_ids": "",
        "tenant_ids": "",
    }  # fmt: skip
