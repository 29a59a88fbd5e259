"""Settings of a site's keeper, read from environment variables; all faults at once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cells.ownership.lease import Timing


class SettingsError(ValueError):
    """The environment is not usable. `faults` names every variable and what is wrong with it."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("; ".join(faults))
        self.faults = faults


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """What the keeper of one cell's site was told."""

    cell: str  # SITE_CELL
    region: str  # SITE_REGION
    founder: str  # SITE_FOUNDER: the region where the cell was begun
    #: SITE_DATABASES: every region's database of the cell, as the regions reach each other; JSON.
    databases: Mapping[str, str] = field(repr=False)
    ownership_url: str = field(repr=False)  # SITE_OWNERSHIP_URL
    valkey_url: str = field(repr=False)  # SITE_VALKEY_URL: this site's cache, emptied by a takeover
    data: Path  # SITE_DATA: the data folder of this site's cluster
    binaries: Path  # SITE_BINARIES: PostgreSQL's programs
    bind_host: str  # SITE_BIND
    bind_port: int
    #: SITE_LEASE_SECONDS, SITE_RENEW_SECONDS, SITE_STOP_SECONDS, SITE_START_SECONDS; the same at all sites.
    timing: Timing
    #: SITE_KEY: the cell's key (hexadecimal), with which the control plane signs what it asks of this site.
    #: None: it is asked for nothing over HTTP.
    key: bytes | None = field(default=None, repr=False)

    @property
    def others(self) -> list[str]:
        """The other sites."""
        return sorted(set(self.databases) - {self.region})

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> Settings:
        """The settings in `env`, or `SettingsError`."""
        faults: list[str] = []

        def text(name: str) -> str:
            found = env.get(name, "").strip()
            if not found:
                faults.append(f"{name} is not set")
            return found

        def seconds(name: str, default: float) -> float:
            found = env.get(name, "").strip()
            try:
                return float(found) if found else default
            except ValueError:
                faults.append(f"{name}: a number of seconds")
                return default

        region, founder = text("SITE_REGION"), text("SITE_FOUNDER")
        databases = _databases(text("SITE_DATABASES"), faults)
        for name, value in (("SITE_REGION", region), ("SITE_FOUNDER", founder)):
            if value and databases and value not in databases:
                faults.append(f"{name}: {value} is not among SITE_DATABASES")
        host, _, port = text("SITE_BIND").rpartition(":")
        if not host or not port.isdigit():
            faults.append("SITE_BIND: host:port")
        timing = Timing()
        try:
            timing = Timing(
                lease=seconds("SITE_LEASE_SECONDS", timing.lease),
                renew=seconds("SITE_RENEW_SECONDS", timing.renew),
                stop=seconds("SITE_STOP_SECONDS", timing.stop),
                start=seconds("SITE_START_SECONDS", timing.start),
            )
        except ValueError as fault:
            faults.append(f"SITE_LEASE_SECONDS and its like: {fault}")
        settings = {
            "cell": text("SITE_CELL"),
            "ownership_url": text("SITE_OWNERSHIP_URL"),
            "valkey_url": text("SITE_VALKEY_URL"),
            "data": Path(text("SITE_DATA")),
            "binaries": Path(text("SITE_BINARIES")),
        }
        key = None
        if told := env.get("SITE_KEY", "").strip():
            try:
                key = bytes.fromhex(told)
            except ValueError:
                faults.append("SITE_KEY: hexadecimal digits")
        if faults:
            raise SettingsError(faults)
        return cls(
            region=region,
            founder=founder,
            databases=databases,
            bind_host=host,
            bind_port=int(port),
            timing=timing,
            key=key,
            **settings,  # type: ignore[arg-type]
        )


def _databases(text: str, faults: list[str]) -> dict[str, str]:
    if not text:
        return {}
    try:
        found: Any = json.loads(text)
    except json.JSONDecodeError:
        found = None
    urls = found.values() if isinstance(found, dict) else ()
    if not urls or not all(isinstance(url, str) for url in urls):
        faults.append("SITE_DATABASES: a JSON object of regions and PostgreSQL URLs")
        return {}
    return dict(found)
