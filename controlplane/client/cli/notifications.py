"""`clockhouse notifications`"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.markup import escape

from controlplane.client.cli import tables
from controlplane.client.cli.job_options import Limit, Yes
from controlplane.client.cli.reading import seconds_of
from controlplane.client.cli.session import BAD_OUTCOME, Session, command, documents
from controlplane.client.cli.wording import moment
from controlplane.client.notification_calls import NotificationDelivery, NotificationRule

app = typer.Typer(no_args_is_help=True, help="Who hears of what: rules, webhooks and mails, delivery log.")

RuleId = Annotated[str, typer.Argument(metavar="RULE", help="Its id: ntr_…")]
DeliveryId = Annotated[str, typer.Argument(metavar="DELIVERY", help="Its id: ntd_…")]
Kinds = Annotated[
    list[str] | None, typer.Option("--kind", "-k", help="run.dead_lettered, … or '*'. May be repeated.")
]
Url = Annotated[str | None, typer.Option(help="Of a webhook.")]
Emails = Annotated[list[str] | None, typer.Option("--email", help="Of a member. May be repeated.")]
Prefix = Annotated[str | None, typer.Option("--name-prefix", help="Only of jobs whose names begin so.")]
Tags = Annotated[list[str] | None, typer.Option("--tag", help="Only of jobs with one of the tags.")]
Targets = Annotated[list[str] | None, typer.Option("--target", help="Only about one of the targets.")]
Every = Annotated[str | None, typer.Option(help="Collect for so long: 5m, 1h. Left out: each at once.")]

#: How long `test` looks for the outcome (seconds), and how often.
_PATIENCE, _PAUSE = 30.0, 0.5


@command(app, "kinds")
def kinds(session: Session) -> None:
    """List everything that a rule can ask for."""
    found = session.client.notifications.kinds()

    def shown() -> RenderableType:
        made = tables.table("kind", "says")
        for kind in found.items:
            made.add_row(kind.name, kind.says)
        return made

    session.answer(found.raw, shown)


@command(app, "list")
def list_(session: Session, limit: Limit = 50) -> None:
    """List rules, the oldest first."""
    found = session.take(session.client.notifications.list(), limit)
    session.answer(documents(found), lambda: _rules(found, session.now))


@command(app, "show")
def show(session: Session, rule: RuleId) -> None:
    """Show a rule and how its receiver does."""
    found = session.client.notifications.get(rule)
    session.answer(found.raw, lambda: _card(found, session.now))


@command(app, "create")
def create(
    session: Session,
    name: Annotated[str, typer.Argument(help="What it is for.")],
    kind: Kinds = None,
    url: Url = None,
    email: Emails = None,
    name_prefix: Prefix = None,
    tag: Tags = None,
    target: Targets = None,
    every: Every = None,
) -> None:
    """Tell of events from now on, to a signed webhook (--url) or by mail (--email). A webhook's secret is
    shown this once."""
    if bool(url) == bool(email):
        raise typer.BadParameter("say where to: either --url or --email")
    found = session.client.notifications.create(
        name,
        kind or [],
        url=url,
        emails=email,
        filters=_filters(name_prefix, tag, target),
        digest_minutes=None if every is None else -(-seconds_of(every) // 60),
    )
    _shown(session, found)


@command(app, "edit")
def edit(
    session: Session,
    rule: RuleId,
    name: Annotated[str | None, typer.Option(help="Another name.")] = None,
    kind: Kinds = None,
    url: Url = None,
    every: Every = None,
    enabled: Annotated[bool | None, typer.Option("--enable/--disable", help="Whether it tells.")] = None,
) -> None:
    """Change what is given."""
    changes: dict[str, Any] = {
        "name": name, "kinds": kind, "url": url, "enabled": enabled,
        "digest_minutes": None if every is None else -(-seconds_of(every) // 60),
    }  # fmt: skip
    given = {field: value for field, value in changes.items() if value is not None}
    if not given:
        raise typer.BadParameter("say what to change")
    _shown(session, session.client.notifications.edit(rule, given))


@command(app, "remove")
def remove(session: Session, rule: RuleId, yes: Yes = False) -> None:
    """No more of a rule, nor of its messages."""
    session.confirm(f"Remove the rule {rule}, its messages that wait, and its delivery log?", yes=yes)
    session.client.notifications.remove(rule)
    session.answer({"rule_id": rule, "removed": True}, lambda: f"{escape(rule)} is gone.")


@command(app, "rotate")
def rotate(
    session: Session,
    rule: RuleId,
    overlap: Annotated[str, typer.Option(help="How long the old secret signs, too: 1h, 1d.")] = "1d",
) -> None:
    """Give a webhook another secret. Messages are signed with both until the overlap is over."""
    found = session.client.notifications.rotate_secret(rule, overlap_seconds=seconds_of(overlap))
    _shown(session, found)


@command(app, "test")
def test(session: Session, rule: RuleId) -> None:
    """Send a test, and say what came of it. Exit status 1 if it did not arrive."""
    found = session.client.notifications.test(rule)
    deadline = time.monotonic() + _PATIENCE
    while not found.over and time.monotonic() < deadline:
        time.sleep(_PAUSE)
        found = session.client.notifications.delivery(found.delivery_id)
    session.answer(found.raw, lambda: _delivery(found, session.now))
    if found.state != "DELIVERED":
        raise typer.Exit(BAD_OUTCOME)


@command(app, "deliveries")
def deliveries(
    session: Session,
    rule: Annotated[str | None, typer.Option("--rule", help="Of one rule.")] = None,
    state: Annotated[str | None, typer.Option(help="COLLECTING, WAITING, DELIVERED, DEAD")] = None,
    limit: Limit = 50,
) -> None:
    """List messages, the newest first."""
    asked = session.client.notifications.deliveries(rule_id=rule, state=state.upper() if state else None)
    found = session.take(asked, limit)
    session.answer(documents(found), lambda: _deliveries(found, session.now))


@command(app, "delivery")
def delivery(session: Session, delivery: DeliveryId) -> None:
    """Show a message: its events, every try, and what the receiver answered."""
    found = session.client.notifications.delivery(delivery)
    session.answer(found.raw, lambda: _delivery(found, session.now))


@command(app, "redeliver")
def redeliver(session: Session, delivery: DeliveryId) -> None:
    """Send a message again, with the same id and content."""
    found = session.client.notifications.redeliver(delivery)
    session.answer(found.raw, lambda: _deliveries([found], session.now))


def _filters(
    prefix: str | None, tags: Sequence[str] | None, targets: Sequence[str] | None
) -> dict[str, Any] | None:
    filters = {"name_prefix": prefix, "tags": tags, "target_ids": targets}
    return {name: value for name, value in filters.items() if value} or None


def _shown(session: Session, rule: NotificationRule) -> None:
    session.answer(rule.raw, lambda: _card(rule, session.now))
    if rule.secret and not session.as_json:
        session.say("The secret that messages are signed with, shown this once:")
        session.out.print(rule.secret, soft_wrap=True)


def _state(rule: NotificationRule) -> str:
    if not rule.enabled:
        return f"stopped: {rule.stopped_because}" if rule.stopped_because else "disabled"
    return f"fails: {rule.last_error}" if rule.failures else "enabled"


def _rules(rules: Sequence[NotificationRule], now: datetime) -> RenderableType:
    if not rules:
        return (
            'Nobody is told of anything. `clockhouse notifications create "on call" --kind run.dead_lettered'
            " --url https://example.com/hook` makes a rule."
        )
    made = tables.table("rule", "name", "state", "tells of", "by", "last delivered")
    for rule in rules:
        made.add_row(
            rule.rule_id,
            escape(rule.name),
            escape(_state(rule)),
            escape(", ".join(rule.kinds)),
            escape(rule.url or ", ".join(rule.emails)),
            moment(rule.last_delivered_at, now) if rule.last_delivered_at else "nothing yet",
        )
    return made


def _card(rule: NotificationRule, now: datetime) -> RenderableType:
    every = f"every {rule.digest_minutes} min" if rule.digest_minutes else "each event at once"
    return tables.card(
        (
            ("rule", rule.rule_id),
            ("name", escape(rule.name)),
            ("state", escape(_state(rule))),
            ("tells of", escape(", ".join(rule.kinds))),
            ("only", escape("; ".join(f"{k} {v}" for k, v in rule.filters.items())) or None),
            ("by", escape(rule.url or ", ".join(rule.emails))),
            ("how often", every),
            ("last delivered", moment(rule.last_delivered_at, now) if rule.last_delivered_at else None),
        )
    )


def _deliveries(found: Sequence[NotificationDelivery], now: datetime) -> RenderableType:
    if not found:
        return "No messages."
    made = tables.table(
        "delivery", "of", "state", "events", "tries", "answer", "made", right=("events", "tries")
    )
    for one in found:
        made.add_row(
            one.delivery_id,
            one.kind,
            tables.state(one.state),
            f"{one.events:,}",
            f"{one.attempts:,}",
            escape(f"{one.last_status or ''} {one.last_error}".strip()),
            moment(one.created_at, now),
        )
    return made


def _delivery(found: NotificationDelivery, now: datetime) -> RenderableType:
    tries = tables.table("try", "at", "took", "answer", right=("try", "took"))
    for one in found.tries:
        answer = escape(f"{one.status or ''} {one.error}".strip())
        tries.add_row(f"{one.n}", moment(one.at, now), f"{one.ms:,} ms", answer)
    events = tables.table("event", "what")
    for event in found.contents:
        events.add_row(event.event_id, escape(event.says))
    return Group(_deliveries([found], now), events, tries)
