"""The router's settings, read once from the environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


class BadSettings(Exception):
    """A setting is missing or makes no sense. The message names it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """Where the router listens, where its feed comes from, where it keeps its copy."""

    host: str
    port: int
    feed_url: str  # base URL of Django, without a trailing slash
    key: bytes  # signs what goes to Django, under the kid `router`
    data_dir: Path  # copy of the feed, spool of the meters
    valkey_url: str
    max_stale_s: int = 900  # an older table no longer vouches for privileged writes
    poll_s: float = 1.0  # between two looks at the feed
    drain_s: float = 25.0  # what requests under way get after SIGTERM
    log_level: str = "INFO"


def from_environment(env: Mapping[str, str]) -> Settings:
    """The settings in `env` (ROUTER_*), or `BadSettings`."""
    missing = [
        name
        for name in ("ROUTER_BIND", "ROUTER_FEED_URL", "ROUTER_KEY", "ROUTER_DATA_DIR", "ROUTER_VALKEY_URL")
        if not env.get(name)
    ]
    if missing:
        raise BadSettings(f"not set: {', '.join(missing)}")
    host, _, port = env["ROUTER_BIND"].rpartition(":")
    if not host or not port.isdigit():
        raise BadSettings("ROUTER_BIND must be host:port")
    try:
        key = bytes.fromhex(env["ROUTER_KEY"])
    except ValueError:
        raise BadSettings("ROUTER_KEY must be hexadecimal") from None
    if len(key) < 16:
        raise BadSettings("ROUTER_KEY must have at least 16 bytes")
    try:
        max_stale_s = int(env.get("ROUTER_MAX_STALE_SECONDS", "900"))
        poll_s = float(env.get("ROUTER_POLL_SECONDS", "1"))
        drain_s = float(env.get("ROUTER_DRAIN_SECONDS", "25"))
    except ValueError:
        raise BadSettings("ROUTER_*_SECONDS must be numbers") from None
    return Settings(
        host=host.strip("[]"),
        port=int(port),
        feed_url=env["ROUTER_FEED_URL"].rstrip("/"),
        key=key,
        data_dir=Path(env["ROUTER_DATA_DIR"]),
        valkey_url=env["ROUTER_VALKEY_URL"],
        max_stale_s=max_stale_s,
        poll_s=poll_s,
        drain_s=drain_s,
        log_level=env.get("ROUTER_LOG_LEVEL", "INFO").upper(),
    )
