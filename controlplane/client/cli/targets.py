"""`clockhouse targets`"""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.markup import escape

from controlplane.client.bulk_calls import TargetTested
from controlplane.client.cli import tables
from controlplane.client.cli.job_options import Limit, Payload, Version, Yes
from controlplane.client.cli.reading import payload_of, read_text, seconds_of
from controlplane.client.cli.session import BAD_OUTCOME, Session, Wrong, command, documents
from controlplane.client.documents import Target
from controlplane.client.wire import without_none

app = typer.Typer(no_args_is_help=True, help="Targets: the places that jobs call.")

Drill = Annotated[
    int | None,
    typer.Option(help="Percent of its calls that are delivered twice on purpose, to see that it copes."),
]
TargetId = Annotated[str, typer.Argument(metavar="TARGET", help="Its id: tgt_…")]


@command(app, "list")
def list_(
    session: Session,
    state: Annotated[str | None, typer.Option(help="PENDING, APPROVED, DISABLED or GONE.")] = None,
    limit: Limit = 50,
) -> None:
    """List targets."""
    targets = session.take(session.client.targets.list(state=state.upper() if state else None), limit)
    session.answer(documents(targets), lambda: tables.targets_table(targets, session.now))


@command(app, "get")
def get(session: Session, target: TargetId) -> None:
    """Show a target."""
    found = session.client.targets.get(target)
    session.answer(found.raw, lambda: tables.target_card(found, session.now))


@command(app, "register")
def register(
    session: Session,
    base_url: Annotated[str, typer.Argument(metavar="BASE_URL", help="https://host/path; jobs add paths.")],
    target_id: Annotated[str | None, typer.Option("--id", help="tgt_… of your choice.")] = None,
    team: Annotated[str | None, typer.Option(help="Who owns it.")] = None,
    description: Annotated[str | None, typer.Option(help="For people.")] = None,
    max_concurrency: Annotated[int | None, typer.Option(help="Calls at once.")] = None,
    latency_slo_ms: Annotated[int | None, typer.Option(help="How fast it should answer.")] = None,
    drill: Drill = None,
    bearer_file: Annotated[str | None, typer.Option(help="A file with a bearer token to send, too.")] = None,
    approve: Annotated[bool, typer.Option("--approve", help="Approve it at once.")] = False,
) -> None:
    """Register a place to call. Its signing secret is shown this once: keep it at the target."""
    auth: dict[str, Any] | None = None
    if bearer_file is not None:
        auth = {"type": "BEARER", "token": read_text(bearer_file).strip()}
    target = session.client.targets.register(
        base_url,
        target_id=target_id,
        owner_team=team,
        description=description,
        max_concurrency=max_concurrency,
        latency_slo_ms=latency_slo_ms,
        auth=auth,
        drill_percent=drill,
    )
    document = dict(target.raw)
    if approve:
        document |= session.client.targets.approve(target.target_id, version=target.version).raw
    _with_secret(session, target, document)
    if not approve:
        session.say(f"[dim]Jobs may call it after `clockhouse targets approve {target.target_id}`.[/dim]")


@command(app, "edit")
def edit(
    session: Session,
    target: TargetId,
    base_url: Annotated[str | None, typer.Option(help="Another one needs a new approval.")] = None,
    team: Annotated[str | None, typer.Option(help="Who owns it.")] = None,
    description: Annotated[str | None, typer.Option(help="For people.")] = None,
    max_concurrency: Annotated[int | None, typer.Option(help="Calls at once.")] = None,
    latency_slo_ms: Annotated[int | None, typer.Option(help="How fast it should answer.")] = None,
    drill: Drill = None,
    version: Version = None,
) -> None:
    """Change what is given; the rest stays. `--drill 0` ends the drill."""
    changes = without_none(
        base_url=base_url,
        owner_team=team,
        description=description,
        max_concurrency=max_concurrency,
        latency_slo_ms=latency_slo_ms,
    )
    if drill is not None:
        changes["drill"] = {"duplicate_percent": drill} if drill else None
    if not changes:
        raise Wrong("nothing to change was given")
    found = session.client.targets.edit(target, changes, version=version)
    session.answer(found.raw, lambda: tables.target_card(found, session.now))


@command(app, "approve")
def approve(session: Session, target: TargetId, version: Version = None) -> None:
    """Allow jobs to call a target, as it is now."""
    found = session.client.targets.approve(target, version=version)
    session.answer(found.raw, lambda: tables.target_card(found, session.now))


@command(app, "rotate-secret")
def rotate_secret(
    session: Session,
    target: TargetId,
    overlap: Annotated[str, typer.Option(help="How long calls carry both signatures: 1h, 1d.")] = "1d",
) -> None:
    """Make a new signing secret, shown this once."""
    found = session.client.targets.rotate_secret(target, overlap_seconds=seconds_of(overlap))
    _with_secret(session, found, dict(found.raw))


@command(app, "disable")
def disable(session: Session, target: TargetId, yes: Yes = False) -> None:
    """Stop all calls to a target, until it is approved again."""
    session.confirm(f"Stop all calls to {target}?", yes=yes)
    found = session.client.targets.edit(target, {"disabled": True})
    session.answer(found.raw, lambda: tables.target_card(found, session.now))


@command(app, "health")
def health(
    session: Session,
    target: TargetId,
    minutes: Annotated[int, typer.Option(help="Of the last minutes.")] = 60,
) -> None:
    """Show how a target has been doing; exit status 1 if it is failing."""
    found = session.client.targets.health(target, minutes=minutes)
    rate = None if found.success_rate is None else f"{found.success_rate * 100:.1f} %"
    rows = [
        ("target", found.target_id),
        ("verdict", found.verdict),
        ("calls", found.calls),
        ("succeeded", found.succeeded),
        ("failed", found.failed or None),
        ("retried", found.retried or None),
        ("success", rate),
        ("half within", None if found.call_p50_ms is None else f"{found.call_p50_ms:g} ms"),
        ("95 % within", None if found.call_p95_ms is None else f"{found.call_p95_ms:g} ms"),
        ("promised", None if found.latency_slo_ms is None else f"{found.latency_slo_ms} ms"),
        ("under way", f"{found.in_flight} of {found.max_concurrency}"),
    ]  # fmt: skip
    session.answer(found.raw, lambda: tables.card(rows))
    if found.verdict == "failing":
        raise typer.Exit(BAD_OUTCOME)


@command(app, "test")
def call_once(
    session: Session,
    target: TargetId,
    path: Annotated[str | None, typer.Option("--path", help="Below the base URL.")] = None,
    method: Annotated[str | None, typer.Option(help="POST, if absent.")] = None,
    payload: Payload = None,
    timeout: Annotated[int, typer.Option(min=1, max=30, help="Seconds that the target has.")] = 10,
) -> None:
    """Call a target once, signed as jobs' calls are; it is no run. Exit status 1 unless it answers 2xx."""
    asked = without_none(path=path, method=method, timeout_seconds=timeout, **payload_of(payload))
    with session.progress(f"Calling {target} …"):
        tested = session.client.targets.test(target, **asked)
    session.answer(tested.raw, lambda: _tested(tested))
    if not tested.ok:
        raise typer.Exit(BAD_OUTCOME)


def _tested(tested: TargetTested) -> str:
    answer = f"HTTP {tested.status}" if tested.status is not None else tested.error or "no answer"
    said = "[green]answered[/green]" if tested.ok else "[red]failed[/red]"
    lines = [
        f"{tested.method} {escape(str(tested.url))}",
        f"{said}: {escape(answer)} in {tested.latency_ms} ms",
    ]
    return "\n".join([*lines, *([escape(tested.body)] if tested.body else [])])


def _with_secret(session: Session, target: Target, document: dict[str, Any]) -> None:
    session.answer(document, lambda: tables.target_card(target, session.now))
    if target.secret and not session.as_json:
        session.say("Its signing secret, shown this once:")
        session.out.print(target.secret, soft_wrap=True)
