"""`clockhouse login`, `clockhouse profile`"""

from __future__ import annotations

import getpass
import stat
import sys
from dataclasses import replace
from typing import Annotated

import typer
from rich.markup import escape

from controlplane.client.cli import tables
from controlplane.client.cli.job_options import Yes
from controlplane.client.cli.reading import read_text
from controlplane.client.cli.session import Session, Wrong, command
from controlplane.client.profiles import (
    DEFAULT_PROFILE,
    Profiles,
    check_key,
    check_url,
    find_settings,
    profile_file,
    read_profiles,
    write_profiles,
)
from controlplane.client.sync import Clockhouse

profile = typer.Typer(no_args_is_help=True, help="Addresses and keys that are kept on this machine.")

ProfileName = Annotated[str, typer.Argument(metavar="NAME", help="As `clockhouse profile list` shows it.")]


def login(
    session: Session,
    url: Annotated[str | None, typer.Option("--url", hidden=True, help="The same as --api-url.")] = None,
    key_file: Annotated[
        str | None, typer.Option(help="A file with the key; - for stdin. Asked for if absent.")
    ] = None,
    use: Annotated[bool, typer.Option("--use/--no-use", help="Make it the default profile.")] = True,
) -> None:
    """Keep an address and a key, after a look whether they work. --profile names the profile."""
    name = session.profile or DEFAULT_PROFILE
    file = profile_file()
    known = read_profiles(file)
    url = check_url(session.api_url or url or _ask("Address of the API: ", secret=False))
    if key_file is None:
        key = check_key(_ask("API key: ", secret=True))
    else:
        key = check_key(read_text(key_file))
    with Clockhouse(url, key, tenant_id=session.tenant, product="cli") as client:
        tenant = client.tenant.get()
    members = {"api_url": url, "api_key": key} | ({"tenant_id": session.tenant} if session.tenant else {})
    profiles = {**known.profiles, name: members}
    default = name if use or not known.profiles else known.default
    write_profiles(file, Profiles(default=default, profiles=profiles))
    session.answer(
        {"profile": name, "api_url": url, "tenant_id": tenant.tenant_id, "file": str(file)},
        lambda: (
            f"Profile {escape(name)}: {escape(tenant.name)} at {escape(url)}, kept in {escape(str(file))}."
        ),
    )


def _ask(question: str, *, secret: bool) -> str:
    if not sys.stdin.isatty():
        raise Wrong("there is no terminal to ask; give --api-url and --key-file")
    if secret:
        return getpass.getpass(question)
    print(question, end="", file=sys.stderr, flush=True)
    return input()


@command(profile, "list")
def list_profiles(session: Session) -> None:
    """List the profiles of this machine; * marks the default."""
    file = profile_file()
    known = read_profiles(file)
    if file.exists() and stat.S_IMODE(file.stat().st_mode) & 0o077:
        session.say(
            f"[yellow]{escape(str(file))} can be read by others: chmod 600 {escape(str(file))}[/yellow]"
        )
    rows = [
        {"profile": name, "default": name == known.default, "api_url": members.get("api_url")}
        for name, members in sorted(known.profiles.items())
    ]
    made = tables.table("", "profile", "address")
    for row in rows:
        made.add_row("*" if row["default"] else "", str(row["profile"]), escape(str(row["api_url"])))
    session.answer(rows, lambda: made if rows else "No profiles. `clockhouse login` makes one.")


@command(profile, "show")
def show_profile(session: Session) -> None:
    """Show which address and key commands use, and where they come from. The key is cut."""
    found = find_settings(profile=session.profile)
    cut = found.api_key[: len("ch_live_") + 16] + "…"
    document = {
        "api_url": found.api_url,
        "api_key": cut,
        "tenant_id": found.tenant_id,
        "source": found.source,
    }
    session.answer(document, lambda: tables.card(document.items()))


@command(profile, "use")
def use_profile(session: Session, name: ProfileName) -> None:
    """Make a profile the default."""
    file = profile_file()
    known = read_profiles(file)
    if name not in known.profiles:
        raise Wrong(f"there is no profile {name}")
    write_profiles(file, replace(known, default=name))
    session.answer({"default": name}, lambda: f"{escape(name)} is the default.")


@command(profile, "remove")
def remove_profile(session: Session, name: ProfileName, yes: Yes = False) -> None:
    """Forget a profile. Its key goes on working; `clockhouse keys revoke` ends it."""
    file = profile_file()
    known = read_profiles(file)
    if name not in known.profiles:
        raise Wrong(f"there is no profile {name}")
    session.confirm(f"Forget the profile {name} and its key?", yes=yes)
    write_profiles(file, replace(known, profiles={n: p for n, p in known.profiles.items() if n != name}))
    session.answer({"removed": name}, lambda: f"{escape(name)} is forgotten.")
