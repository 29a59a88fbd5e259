"""`clockhouse definitions`: what workflows do, version by version."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markdown import Markdown
from rich.markup import escape

from controlplane.client.cli.job_options import Limit
from controlplane.client.cli.reading import read_text
from controlplane.client.cli.session import BAD_OUTCOME, Session, Wrong, command, documents
from controlplane.client.cli.wording import listed
from controlplane.client.cli.workflow_tables import checked_table, definition_card, definitions_table
from controlplane.client.definition_calls import named_in, whole
from controlplane.client.language import language, sample

app = typer.Typer(
    no_args_is_help=True,
    help="Definitions of workflows: what they do, version by version. `language` shows how one is written.",
)

File = Annotated[str, typer.Argument(metavar="FILE", help="YAML or JSON; - is stdin.")]
Name = Annotated[str | None, typer.Option(help="Where the file does not say `workflow`.")]
Version = Annotated[int | None, typer.Option(help="Where the file does not say `version`.")]


def _place(text: str, name: str | None, version: int | None) -> tuple[str, int]:
    said = name or named_in(text, "workflow")
    number = str(version) if version is not None else named_in(text, "version")
    missing = []
    if said is None:
        missing.append("`workflow`, its name (--name does)")
    if number is None or not number.isdecimal():
        missing.append("`version`, a whole number (--version does)")
    if said is None or missing:
        raise Wrong(
            f"the text does not say {listed(missing)}; `clockhouse definitions language` shows a whole one"
        )
    return said, int(str(number))


@command(
    app,
    "put",
    help="Register a version. Every fault of the text is told with its line. A version never changes: the"
    " same text again changes nothing, another one is refused.\n\n"
    "A definition to begin with (all of the language: `clockhouse definitions language`):\n\n"
    f"\b\n{escape(sample())}",
)
def put(session: Session, file: File, name: Name = None, version: Version = None) -> None:
    """Register a version."""
    text = read_text(file)
    found = session.client.definitions.put(*_place(text, name, version), text)
    what = f"{found.name} {found.version}"
    done = f"{what} is registered." if found.created else f"{what} was registered before, with this text."
    hint = f"`clockhouse workflows start {found.name}` starts one."
    session.answer({**found.raw, "created": found.created}, lambda: f"{done} {hint}")


@command(app, "language")
def show_language(session: Session) -> None:
    """Show how a definition is written: a sample, steps, expressions, retries, undoing, signals, timers,
    limits. Needs no key."""
    if session.as_json:
        session.answer({"text": language(), "sample": sample()})
    elif session.out.is_terminal:
        session.out.print(Markdown(language()))
    else:
        print(language(), end="")


@command(app, "check")
def check(
    session: Session,
    file: Annotated[
        str | None, typer.Argument(metavar="[FILE]", help="A candidate; else what is registered is checked.")
    ] = None,
    name: Name = None,
    version: Version = None,
) -> None:
    """Replay every open execution against a candidate, before it is registered or anything goes on under it.
    Exit status 1 if one could not, or takes too long to be replayed. Nothing is changed."""
    text: str | None = None
    if file is None:
        if name is None or version is None:
            raise Wrong("say a file, or with --name and --version what is registered")
    else:
        text = read_text(file)
        name, version = _place(text, name, version)
    walk = session.client.definitions.check_pages(name, version, text)
    first = next(walk)
    pages = [first]
    if first.next_cursor is not None:
        with session.progress("Replaying open executions …", first.open) as advance:
            advance(first.looked_at)
            for page in walk:
                pages.append(page)
                advance(page.looked_at)
    found = whole(pages)
    session.answer(found.raw, lambda: checked_table(found))
    if found.blocked or found.undecided:
        raise typer.Exit(BAD_OUTCOME)


@command(app, "list")
def list_(
    session: Session,
    name: Annotated[str | None, typer.Option(help="Versions of this one.")] = None,
    limit: Limit = 50,
) -> None:
    """List definitions by name, the newest version first."""
    walk = session.client.definitions.list(name=name, limit=min(limit, 200) if limit > 0 else 200)
    found = session.take(walk, limit)
    session.answer(documents(found), lambda: definitions_table(found, session.now))


@command(app, "show")
def show(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="DEFINITION", help="Its name.")],
    version: Annotated[int | None, typer.Option(help="The newest, if absent.")] = None,
    source: Annotated[bool, typer.Option("--source", help="Its text and nothing else.")] = False,
) -> None:
    """Show a definition: its steps, and its text."""
    found = session.client.definitions.get(name, version)
    if source and not session.as_json:
        print(found.source or "", end="")
        return
    session.answer(found.raw, lambda: definition_card(found, session.now))
