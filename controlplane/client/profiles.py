"""Where a client finds the API's address and its key.

In this order: arguments, a profile asked for by name, the environment (`CLOCKHOUSE_API_URL`,
`CLOCKHOUSE_API_KEY`, `CLOCKHOUSE_TENANT_ID`), the profile `CLOCKHOUSE_PROFILE` names, the default
profile. A key that a profile keeps is sent to that profile's address and nowhere else: an address
given elsewhere needs a key given elsewhere.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from controlplane.client.errors import ConfigurationError

DEFAULT_PROFILE = "default"
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_MEMBERS = ("api_url", "api_key", "tenant_id")


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """An address and a key. `tenant_id` is for operators' keys, which have no tenant of their own."""

    api_url: str
    api_key: str = field(repr=False)
    tenant_id: str | None = None
    source: str = "arguments"  # where the key came from, for people


@dataclass(frozen=True, kw_only=True, slots=True)
class Profiles:
    """What the profile file holds."""

    default: str = DEFAULT_PROFILE
    profiles: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)


def profile_file(environment: Mapping[str, str] | None = None) -> Path:
    """`~/.config/clockhouse/profiles.toml`, or what `CLOCKHOUSE_CONFIG` names."""
    env = os.environ if environment is None else environment
    if named := env.get("CLOCKHOUSE_CONFIG"):
        return Path(named)
    base = env.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path.home() / ".config") / "clockhouse" / "profiles.toml"


def read_profiles(file: Path) -> Profiles:
    """What the file holds; nothing if there is none."""
    try:
        with file.open("rb") as opened:
            document = tomllib.load(opened)
    except FileNotFoundError:
        return Profiles()
    except (OSError, tomllib.TOMLDecodeError) as fault:
        raise ConfigurationError(f"{file} cannot be read: {fault}") from None
    found = document.get("profiles", {})
    if not isinstance(found, dict) or not all(isinstance(p, dict) for p in found.values()):
        raise ConfigurationError(f"{file}: [profiles.<name>] tables are expected")
    profiles = {
        name: {member: str(profile[member]) for member in _MEMBERS if member in profile}
        for name, profile in found.items()
    }
    return Profiles(default=str(document.get("default", DEFAULT_PROFILE)), profiles=profiles)


def write_profiles(file: Path, profiles: Profiles) -> None:
    """Replace the file as a whole, readable by its owner only."""
    lines = ["# Kept by `clockhouse login` and `clockhouse profile`.", f"default = {_text(profiles.default)}"]
    for name, members in sorted(profiles.profiles.items()):
        lines += ["", f"[profiles.{_checked_name(name)}]"]
        lines += [f"{member} = {_text(members[member])}" for member in _MEMBERS if members.get(member)]
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # mkstemp makes it 0600 from the first byte on.
    handle, temporary = tempfile.mkstemp(dir=file.parent, prefix=".profiles-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as opened:
            opened.write("\n".join(lines) + "\n")
        Path(temporary).replace(file)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _text(value: str) -> str:
    # JSON's strings are TOML's basic strings, but for DEL.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _checked_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ConfigurationError(f"{name!r} is no name for a profile: letters, digits, `-` and `_`")
    return name


def find_settings(
    *,
    api_url: str | None = None,
    api_key: str | None = None,
    tenant_id: str | None = None,
    profile: str | None = None,
    environment: Mapping[str, str] | None = None,
    file: Path | None = None,
) -> Settings:
    """The address and the key to use. Raises `ConfigurationError` with what to do."""
    env = os.environ if environment is None else environment
    sources: list[tuple[str, Mapping[str, str | None]]] = [
        ("arguments", {"api_url": api_url, "api_key": api_key, "tenant_id": tenant_id})
    ]
    from_env = {member: env.get(f"CLOCKHOUSE_{member.upper()}") or None for member in _MEMBERS}
    environment_source = ("environment", from_env)
    if profile is None:
        sources.append(environment_source)
    wanted = profile or env.get("CLOCKHOUSE_PROFILE") or None
    # The file is not needed, and its faults do not matter, where everything is known already.
    if profile is not None or not all(_first(sources, member) for member in ("api_url", "api_key")):
        sources.append(_profile_source(file or profile_file(env), wanted))
    if profile is not None:
        sources.append(environment_source)
    return _settled(sources)


def _profile_source(file: Path, wanted: str | None) -> tuple[str, Mapping[str, str | None]]:
    known = read_profiles(file)
    name = wanted or known.default
    if wanted is not None and wanted not in known.profiles:
        there = ", ".join(sorted(known.profiles)) or "none"
        raise ConfigurationError(f"there is no profile {wanted} in {file} (there: {there})")
    return f"profile {name}", dict(known.profiles.get(name, {}))


def _first(sources: list[tuple[str, Mapping[str, str | None]]], member: str) -> tuple[str, str] | None:
    for source, values in sources:
        if value := values.get(member):
            return source, value
    return None


def _settled(sources: list[tuple[str, Mapping[str, str | None]]]) -> Settings:
    url, key = _first(sources, "api_url"), _first(sources, "api_key")
    if url is None:
        raise ConfigurationError(
            "no API address: `clockhouse login`, or set CLOCKHOUSE_API_URL, or give api_url (--api-url)"
        )
    if key is None:
        raise ConfigurationError("no API key: `clockhouse login`, or set CLOCKHOUSE_API_KEY, or give api_key")
    kept = dict(sources).get(key[0], {})
    if key[0].startswith("profile") and kept.get("api_url") not in (None, url[1]):
        raise ConfigurationError(
            f"the key of {key[0]} is for {kept['api_url']}, but the address of the {url[0]} is {url[1]};"
            " give a key for that address, too"
        )
    tenant = _first(sources, "tenant_id")
    return Settings(
        api_url=check_url(url[1]),
        api_key=check_key(key[1]),
        tenant_id=tenant[1] if tenant else None,
        source=key[0],
    )


def check_url(text: str) -> str:
    """An http(s) address without a slash at its end."""
    parts: Any = urlsplit(text.strip())
    if parts.scheme not in ("http", "https") or not parts.netloc or parts.query or parts.fragment:
        raise ConfigurationError(f"{text!r} is no address of an API; https://api.example.com would be one")
    return text.strip().rstrip("/").removesuffix("/v1")


def check_key(text: str) -> str:
    """A key that fits into a header."""
    key = text.strip()
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise ConfigurationError("the API key holds characters that no key has")
    return key
