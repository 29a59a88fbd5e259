"""The control plane's settings from the environment, read once and checked."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from psycopg.conninfo import conninfo_to_dict

from cells.lake_url import check_url

#: Where mails may go; see `controlplane.mail`.
MAIL_SCHEMES = ("smtp", "smtps", "smtp+tls", "file")


class ConfigurationError(Exception):
    """An environment variable is missing or malformed; the text names it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Configuration:
    """What `CONTROL_*` says."""

    database_url: str
    ownership_url: str
    valkey_url: str
    secret_key: str
    installation_keys: tuple[bytes, ...]  # the first seals, all open
    router_key: bytes
    public_api_url: str
    console_url: str
    debug: bool
    allowed_hosts: tuple[str, ...]
    log_level: str
    email_url: str  # see `controlplane.mail`; empty (only with debug) writes mail to the log
    email_from: str
    issuer: Mapping[str, str]  # name, address (lines behind `|`), tax_id of who writes invoices
    stripe_key: str  # empty: nothing is told to Stripe, and everything else works
    stripe_webhook_secret: str
    stripe_url: str  # instead of Stripe's own addresses; empty: those
    owners_may_move: bool = False  # tenants' owners may start and give up moves of their tenant
    exports: str = ""  # file:///folder or s3://bucket/prefix; empty: nothing can be exported
    exports_endpoint: str = ""  # an S3 that is not Amazon's
    lake: str = ""  # where the cells' history is, for reports; empty: there are none
    lake_endpoint: str = ""
    #: Addresses that webhooks may have besides public ones: see `cells.domain.egress`.
    egress_allow: frozenset[str] = frozenset()


def _hex_key(name: str, text: str) -> bytes:
    try:
        key = bytes.fromhex(text.strip())
    except ValueError as e:
        raise ConfigurationError(f"{name} must be hexadecimal") from e
    if len(key) < 32:
        raise ConfigurationError(f"{name} must have at least 32 bytes (64 hexadecimal digits)")
    return key


def _place(name: str, url: str) -> str:
    try:
        return check_url(url) if url else ""
    except ValueError as e:
        raise ConfigurationError(f"{name} must be {e}") from e


def _email_url(url: str, *, debug: bool) -> str:
    """Mails hold links that let people in: without debug none may end in a log."""
    scheme = urlsplit(url).scheme
    if url and scheme not in MAIL_SCHEMES:
        raise ConfigurationError(f"CONTROL_EMAIL_URL must begin with one of {', '.join(MAIL_SCHEMES)}")
    if not url and not debug:
        raise ConfigurationError(
            "CONTROL_EMAIL_URL is not set: mails with links to reset passwords would be written to the log."
            " Name a server (smtp://host:25) or a folder (file:///var/mail/clockhouse);"
            " only with CONTROL_DEBUG=1 it may be empty"
        )
    return url


def _egress(text: str) -> frozenset[str]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    for word in words:
        if word not in ("loopback", "private"):
            try:
                ipaddress.ip_network(word)
            except ValueError as e:
                raise ConfigurationError(f"CONTROL_EGRESS_ALLOW: {word} is no network") from e
    return frozenset(words)


def read_configuration(environ: Mapping[str, str] | None = None) -> Configuration:
    """The configuration, or `ConfigurationError` with the first variable that is wrong."""
    env = os.environ if environ is None else environ

    def need(name: str) -> str:
        value = env.get(name, "")
        if not value:
            raise ConfigurationError(f"{name} is not set")
        return value

    debug = env.get("CONTROL_DEBUG", "0") == "1"
    seals = need("CONTROL_INSTALLATION_KEY").split(",")
    return Configuration(
        database_url=need("CONTROL_DATABASE_URL"),
        ownership_url=need("CONTROL_OWNERSHIP_URL"),
        valkey_url=need("CONTROL_VALKEY_URL"),
        secret_key=need("CONTROL_SECRET_KEY"),
        installation_keys=tuple(_hex_key("CONTROL_INSTALLATION_KEY", k)[:32] for k in seals),
        router_key=_hex_key("CONTROL_ROUTER_KEY", need("CONTROL_ROUTER_KEY")),
        public_api_url=env.get("CONTROL_PUBLIC_API_URL", "http://127.0.0.1:8080").rstrip("/"),
        console_url=env.get("CONTROL_CONSOLE_URL", "http://127.0.0.1:8000").rstrip("/"),
        debug=debug,
        allowed_hosts=tuple(
            h.strip() for h in env.get("CONTROL_ALLOWED_HOSTS", "127.0.0.1,localhost").split(",") if h.strip()
        ),
        log_level=env.get("CONTROL_LOG_LEVEL", "INFO").upper(),
        email_url=_email_url(env.get("CONTROL_EMAIL_URL", ""), debug=debug),
        email_from=env.get("CONTROL_EMAIL_FROM", "") or "Clockhouse <clockhouse@localhost>",
        issuer={
            "name": env.get("CONTROL_ISSUER_NAME", "") or "Clockhouse",
            "address": "\n".join(p.strip() for p in env.get("CONTROL_ISSUER_ADDRESS", "").split("|")),
            "tax_id": env.get("CONTROL_ISSUER_TAX_ID", ""),
        },
        stripe_key=env.get("CONTROL_STRIPE_KEY", ""),
        stripe_webhook_secret=env.get("CONTROL_STRIPE_WEBHOOK_SECRET", ""),
        stripe_url=env.get("CONTROL_STRIPE_URL", "").rstrip("/"),
        owners_may_move=env.get("CONTROL_OWNERS_MAY_MOVE", "0") == "1",
        exports=_place("CONTROL_EXPORTS", env.get("CONTROL_EXPORTS", "")),
        exports_endpoint=env.get("CONTROL_EXPORTS_ENDPOINT", "").rstrip("/"),
        lake=_place("CONTROL_LAKE", env.get("CONTROL_LAKE", "")),
        lake_endpoint=env.get("CONTROL_LAKE_ENDPOINT", "").rstrip("/"),
        egress_allow=_egress(env.get("CONTROL_EGRESS_ALLOW", "")),
    )


def django_database(url: str) -> dict[str, object]:
    """Django's connection settings for a PostgreSQL URL."""
    parts = conninfo_to_dict(url)
    known = {"host", "port", "user", "password", "dbname"}
    return {
        "HOST": str(parts.get("host") or ""),
        "PORT": str(parts.get("port") or ""),
        "USER": str(parts.get("user") or ""),
        "PASSWORD": str(parts.get("password") or ""),
        "NAME": str(parts["dbname"]),
        "OPTIONS": {k: v for k, v in parts.items() if k not in known},
    }
