"""The product in three regions in a temporary folder: a `Stack` whose regions die and come back."""

from __future__ import annotations

from typing import Any, ClassVar

from deploy import ctl
from deploy.processes import read_status
from tests.api import Api
from tests.stack import Stack
from tests.waiting import eventually_sync


class RegionalStack(Stack):
    """One installation of `make regions`."""

    module: ClassVar[str] = "deploy.regional"
    start_seconds: ClassVar[float] = 300.0

    @property
    def regions(self) -> dict[str, dict[str, Any]]:
        """What `dev.json` says of each region."""
        told: dict[str, dict[str, Any]] = self.info["regions"]
        return told

    def api_in(self, region: str) -> Api:
        """The demo tenant's API as that region's router answers it."""
        return Api(self.regions[region]["api_url"], self.info["api_key"])

    def site(self, cell: str, region: str) -> dict[str, Any]:
        """Addresses of a cell's site."""
        told: dict[str, Any] = self.regions[region]["sites"][cell]
        return told

    def keeper(self, cell: str, region: str) -> dict[str, Any]:
        """What a site's keeper says; empty where it does not answer."""
        return read_status(int(self.site(cell, region)["keeper_url"].rpartition(":")[2]))

    def owner(self, cell: str) -> str | None:
        """The region that may act for a cell now."""
        for region in self.regions:
            if self.keeper(cell, region).get("owns"):
                return region
        return None

    def processes_of(self, region: str) -> list[str]:
        """All processes of a region: engines, keepers, cells, router."""
        return [name for name in ctl.conditions(self.home) if name.endswith(f"-{region}")]

    def region_dies(self, region: str) -> None:
        """Everything in it is killed at once, and stays down."""
        names = self.processes_of(region)
        for name in names:
            (self.home.down / name).write_text("KILL")

        def all_down() -> bool:
            now = ctl.conditions(self.home)
            return all(now[name] == "stopped" for name in names)

        eventually_sync(all_down, timeout=60)

    def region_returns(self, region: str) -> None:
        """Its processes are started again; what they find is theirs to deal with."""
        for name in self.processes_of(region):
            (self.home.down / name).unlink(missing_ok=True)
