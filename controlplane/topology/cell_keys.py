"""Signing keys of cells: sealed at rest, opened where something is signed or checked."""

from __future__ import annotations

from functools import lru_cache

from django.conf import settings

from controlplane.sealing import Sealer


@lru_cache(maxsize=1)
def installation_sealer() -> Sealer:
    """Seals with this installation's key."""
    return Sealer(settings.CONFIGURATION.installation_keys)


def seal_cell_key(name: str, key: bytes) -> bytes:
    return installation_sealer().seal(key, context=f"cell:{name}".encode())


@lru_cache(maxsize=1024)
def open_cell_key(name: str, sealed: bytes) -> bytes:
    """The key of a cell. Raises `Unsealable`."""
    return installation_sealer().open(sealed, context=f"cell:{name}".encode())
