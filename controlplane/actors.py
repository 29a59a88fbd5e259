"""Who does something: the last word of every use-case's signature, and of every audit event."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Actor:
    """A person, a key, or a part of the system."""

    name: str  # `user:<uuid>`, `key:<id>`, `service:<what>`
    operator: bool = False  # may act for every tenant
    owner: bool = False  # an owner of the tenant concerned: may make and unmake owners
    source: str = ""  # from where: channel and address, `api 203.0.113.7`


def service(name: str) -> Actor:
    """The control plane acting on its own account."""
    return Actor(name=f"service:{name}", operator=True, owner=True, source="control-plane")
