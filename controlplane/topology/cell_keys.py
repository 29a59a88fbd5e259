"""Signing keys of cells and the addresses of their engines: sealed at rest, opened where they are used."""

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


def seal_engine_url(cell: str, region: str, engine: str, url: str) -> bytes:
    """The address of a site's engine (`database`, `valkey`) with its password."""
    return installation_sealer().seal(url.encode(), context=_engine(cell, region, engine))


def open_engine_url(cell: str, region: str, engine: str, sealed: bytes) -> str:
    """What `seal_engine_url` sealed. Raises `Unsealable`."""
    return installation_sealer().open(sealed, context=_engine(cell, region, engine)).decode()


def _engine(cell: str, region: str, engine: str) -> bytes:
    return f"engine:{cell}:{region}:{engine}".encode()
