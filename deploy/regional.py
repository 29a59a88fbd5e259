"""`make regions`: the product in three regions on one machine, in the foreground, until Ctrl-C.

Every cell has a site in every region: a PostgreSQL (one the primary, the others its standbys), a Valkey,
a keeper and a process of the cell, of which the owner's works and the others wait; and a local store: a
PostgreSQL that no other region copies, with a process of its own that always works. Every region has a router
of its own. The ownership store has a cluster of its own; the control plane is one, as ever.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from deploy import children
from deploy.children import CannotStart
from deploy.demo import demo_jobs_now, seed
from deploy.dev import Installation, all_of, run
from deploy.engines import Engine, Postgres, Valkey, postgres_binaries
from deploy.home import ROOT, AlreadyRunning, Home, default_home
from deploy.processes import Processes, engine_process, http_process, is_healthy, read_status
from deploy.settings import Environments, Options, Stores, bootstrap_request, read_options
from deploy.sites import SITE_SETTINGS, SitePostgres
from deploy.stores import create_database, with_path
from deploy.supervisor import Process

REGIONS = ("east", "west", "north")
_CELLS = "shared-1,shared-2"
#: Fourteen clusters share one machine.
_SMALL: Mapping[str, str] = {**SITE_SETTINGS, "shared_buffers": "32MB", "max_connections": "60"}
#: Of a local store, which nobody replicates.
_LOCAL: Mapping[str, str] = {"shared_buffers": "32MB", "max_connections": "40"}
_OWNED_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True)
class Site:
    """A cell's presence in one region."""

    cell: str
    region: str

    @property
    def key(self) -> str:
        """Ends the names of its processes."""
        return f"{self.cell}-{self.region}"

    @property
    def local(self) -> str:
        """Ends the names of what its local store consists of."""
        return f"{self.cell}-local-{self.region}"

    @property
    def store(self) -> int:
        """The number of its local store: in the ids of what is kept there, for good."""
        return REGIONS.index(self.region) + 1

    @property
    def founding(self) -> bool:
        """Whether its cell begins here."""
        return self.region == REGIONS[0]


def sites(options: Options) -> Iterator[Site]:
    """All of them, cell by cell."""
    for cell in options.cells:
        for region in REGIONS:
            yield Site(cell=cell, region=region)


class RegionalEnvironments(Environments):
    """The environment variables of what there is once per site or region."""

    def cell_at(self, site: Site) -> dict[str, str]:
        """Of `cells.host` at a site."""
        return {
            **self.of_cell(site.cell, bind=f"cell-{site.key}"),
            "CELL_REGION": site.region,
            "CELL_OWNERSHIP": "LEASED",
            "CELL_DATABASE_URL": self._stores.cells[site.key],
            "CELL_VALKEY_URL": self._stores.cell_valkeys[site.key],
            "CELL_STORES": json.dumps(
                [
                    {
                        "number": other.store,
                        "region": other.region,
                        "url": self._ports.url(f"cell-{other.local}"),
                    }
                    for other in (Site(cell=site.cell, region=region) for region in REGIONS)
                ]
            ),
        }

    def local_at(self, site: Site) -> dict[str, str]:
        """Of `cells.host` in front of a site's local store; a number of the site's Valkey is its own."""
        return {
            **self.of_cell(site.cell, bind=f"cell-{site.local}"),
            "CELL_REGION": site.region,
            "CELL_STORE": str(site.store),
            "CELL_DATABASE_URL": self._stores.cells[site.local],
            "CELL_VALKEY_URL": with_path(self._stores.cell_valkeys[site.key], "2"),
            "CELL_POOL_SIZE": "8",
        }

    def keeper(self, site: Site) -> dict[str, str]:
        """Of `controlplane.regions`, and of what makes a site's cluster ready."""
        return {
            **self._base,
            "PYTHONPATH": str(ROOT),
            "SITE_CELL": site.cell,
            "SITE_REGION": site.region,
            "SITE_FOUNDER": REGIONS[0],
            "SITE_DATABASES": json.dumps(
                {region: self._stores.cells[f"{site.cell}-{region}"] for region in REGIONS}
            ),
            "SITE_OWNERSHIP_URL": self._stores.ownership,
            "SITE_VALKEY_URL": self._stores.cell_valkeys[site.key],
            "SITE_DATA": str(self._home.folder / f"postgres-{site.key}" / "data"),
            "SITE_BINARIES": str(postgres_binaries()),
            "SITE_BIND": self._ports.bind(f"keeper-{site.key}"),
            "SITE_KEY": self._state.cell_key(site.cell),
        }

    def router_in(self, region: str, cell: str) -> dict[str, str]:
        """Of the router of a region; it counts in that region's Valkey of a cell."""
        return {
            **self.router(),
            "ROUTER_BIND": self._ports.bind(f"router-{region}"),
            "ROUTER_DATA_DIR": str(self._home.folder / f"router-{region}"),
            "ROUTER_VALKEY_URL": with_path(self._stores.cell_valkeys[f"{cell}-{region}"], "1"),
        }


class RegionalInstallation(Installation):
    """One run of the product in three regions."""

    async def up(self) -> None:
        """Start everything: what the sites ask first, the sites, what is in front of them."""
        home, options, state, ports = self._home, self._options, self._state, self._ports
        children.end_marked(home.folder)
        ports.alias("router", f"router-{REGIONS[0]}")
        central = self._central_engines()
        valkeys = {site.key: self._valkey(f"valkey-{site.key}") for site in sites(options)}
        stores = self._locate(central, valkeys)
        environments = RegionalEnvironments(home, state, ports, stores)
        self._processes = Processes(home, environments, ports)
        for region in REGIONS:
            ports.of(f"router-{region}")
        for name in ("django", "echo"):
            ports.of(name)
        for site in sites(options):
            ports.of(f"cell-{site.key}")
            ports.of(f"cell-{site.local}")
        home.keep(state)

        start = self.supervisor.start
        await all_of(*(start(engine_process(engine)) for engine in (*central.values(), *valkeys.values())))
        await asyncio.to_thread(create_database, central["ownership"].url, stores.ownership)
        await asyncio.to_thread(create_database, central["control"].url, stores.control)
        await asyncio.to_thread(
            children.run,
            [sys.executable, "-m", "controlplane.regions", "setup"],
            children.Identity.SELF,
            env=environments.keeper(next(sites(options))),
        )
        self.say("the ownership store is up")
        placed, *_ = await all_of(
            self._control_plane(environments, stores),
            *(self._cell(cell, environments) for cell in options.cells),
            *(self._local(site, environments) for site in sites(options)),
            *(start(self._router(region, environments)) for region in REGIONS),
            start(self._processes.echo()),
        )
        jobs = demo_jobs_now() if options.demo_jobs else []
        await asyncio.to_thread(
            seed, ports.url("router"), state.api_key, echo_url=ports.url("echo"), jobs=jobs
        )
        self._dev = self._describe_regions(json.loads(placed), stores)
        self._write_dev()
        self._greet()
        print("  regions    " + "\n             ".join(
            f"{region:6} {ports.url(f'router-{region}')}" for region in REGIONS
        ), flush=True)  # fmt: skip

    # --- parts ---------------------------------------------------------------------------
    def _central_engines(self) -> dict[str, Engine]:
        engines: dict[str, Engine] = {"valkey": self._valkey("valkey-control")}
        for part in ("control", "ownership"):
            name = f"postgres-{part}"
            folder = self._home.folder / name
            children.end_leftovers(folder / "data", "postgres")
            engines[part] = Postgres(
                folder, name=name, port=self._ports.of(name), password=self._state.engine_password(name)
            )
        return engines

    def _valkey(self, name: str) -> Valkey:
        folder = self._home.folder / name
        children.end_leftovers(folder / "data", "valkey-server")
        return Valkey(
            folder, name=name, port=self._ports.of(name), password=self._state.engine_password(name)
        )

    def _locate(self, central: Mapping[str, Engine], valkeys: Mapping[str, Engine]) -> Stores:
        def database(site: Site) -> str:
            name = f"postgres-{site.key}"
            children.end_leftovers(self._home.folder / name / "data", "postgres")
            # One password for all sites of a cell: a copy of a cluster has its users.
            password = self._state.engine_password(f"postgres-{site.cell}")
            return f"postgresql://clockhouse:{password}@{self._ports.bind(name)}/cell"

        return Stores(
            control=with_path(central["control"].url, "control"),
            ownership=with_path(central["ownership"].url, "ownership"),
            cells={
                **{site.key: database(site) for site in sites(self._options)},
                **{
                    site.local: with_path(self._local_cluster(site).url, "cell")
                    for site in sites(self._options)
                },
            },
            control_valkey=with_path(central["valkey"].url, "0"),
            router_valkey=with_path(central["valkey"].url, "1"),
            cell_valkeys={key: valkey.url for key, valkey in valkeys.items()},
        )

    def _cluster(self, site: Site, environments: RegionalEnvironments) -> SitePostgres:
        name = f"postgres-{site.key}"
        return SitePostgres(
            self._home.folder / name,
            name=name,
            port=self._ports.of(name),
            password=self._state.engine_password(f"postgres-{site.cell}"),
            settings={**_SMALL, "cluster_name": site.region},
            founding=site.founding,
            make_ready=[sys.executable, "-m", "controlplane.regions", "prepare"],
            environment=environments.keeper(site),
        )

    def _local_cluster(self, site: Site) -> Postgres:
        name = f"postgres-{site.local}"
        children.end_leftovers(self._home.folder / name / "data", "postgres")
        return Postgres(
            self._home.folder / name,
            name=name,
            port=self._ports.of(name),
            password=self._state.engine_password(name),
            settings=_LOCAL,
        )

    async def _local(self, site: Site, environments: RegionalEnvironments) -> None:
        cluster = self._local_cluster(site)
        await self.supervisor.start(engine_process(cluster))
        await asyncio.to_thread(create_database, cluster.url, with_path(cluster.url, "cell"))
        name = f"cell-{site.local}"
        await self.supervisor.start(
            http_process(name, ["-m", "cells.host"], environments.local_at(site), port=self._ports.of(name))
        )

    async def _cell(self, cell: str, environments: RegionalEnvironments) -> None:
        """The sites that have a cluster (and the one that makes the first), then those that copy it."""
        own = [Site(cell=cell, region=region) for region in REGIONS]
        data = {site: self._home.folder / f"postgres-{site.key}" / "data" for site in own}
        there = [site for site in own if site.founding or data[site].exists()]
        await all_of(*(self._site(site, environments) for site in there))
        await self._until_owned(own)
        await all_of(*(self._site(site, environments) for site in own if site not in there))
        await self._until_working(own)
        self.say(f"{cell} works in all regions")

    async def _site(self, site: Site, environments: RegionalEnvironments) -> None:
        cluster = self._cluster(site, environments)
        start = self.supervisor.start
        await start(engine_process(cluster))
        if site.founding:
            await asyncio.to_thread(create_database, cluster.url, with_path(cluster.url, "cell"))
        await all_of(
            start(
                http_process(
                    f"keeper-{site.key}",
                    ["-m", "controlplane.regions", "keep"],
                    environments.keeper(site),
                    port=self._ports.of(f"keeper-{site.key}"),
                    ready=is_healthy,
                    keeps_engines=True,
                )
            ),
            start(
                http_process(
                    f"cell-{site.key}",
                    ["-m", "cells.host"],
                    environments.cell_at(site),
                    port=self._ports.of(f"cell-{site.key}"),
                    ready=is_healthy,
                )
            ),
        )

    async def _until_owned(self, own: list[Site]) -> None:
        await self._until(lambda: any(self._asked(site).get("owns") for site in own), own)

    async def _until_working(self, own: list[Site]) -> None:
        await self._until(lambda: all(self._asked(site).get("ready") for site in own), own)

    async def _until(self, condition: Any, own: list[Site]) -> None:
        deadline = asyncio.get_running_loop().time() + _OWNED_SECONDS
        while not await asyncio.to_thread(condition):
            if asyncio.get_running_loop().time() > deadline:
                said = {site.region: self._asked(site).get("why") for site in own}
                raise CannotStart(f"{own[0].cell} is not kept everywhere: {said}")
            await asyncio.sleep(0.2)

    def _asked(self, site: Site) -> dict[str, Any]:
        return read_status(self._ports.of(f"keeper-{site.key}"))

    def _router(self, region: str, environments: RegionalEnvironments) -> Process:
        (self._home.folder / f"router-{region}").mkdir(mode=0o700, exist_ok=True)
        return http_process(
            f"router-{region}",
            ["-m", "controlplane.routing"],
            environments.router_in(region, self._options.cells[0]),
            port=self._ports.of(f"router-{region}"),
            entry=True,
        )

    async def _control_plane(self, environments: RegionalEnvironments, stores: Stores) -> str:
        start, processes = self.supervisor.start, self._processes
        await self._manage("migrate", ["setup_database"], environments)
        workers = processes.celery_workers(one=self._options.one_worker)
        await all_of(*map(start, (processes.django(), *workers, processes.celery_beat())))
        request = bootstrap_request(self._state, self._ports, [], stores)
        request["region"] = REGIONS[0]
        request["cells"] = [
            {
                "name": cell,
                "url": ",".join(self._ports.url(f"cell-{cell}-{region}") for region in REGIONS),
                "key_hex": self._state.cell_key(cell),
                "keepers": {region: self._ports.url(f"keeper-{cell}-{region}") for region in REGIONS},
            }
            for cell in self._options.cells
        ]
        return await self._manage(
            "bootstrap", ["bootstrap", "--wait-seconds", "60"], environments, json.dumps(request)
        )

    def _describe_regions(self, placed: Mapping[str, Any], stores: Stores) -> dict[str, Any]:
        described = self._describe_people(placed, stores)
        described["regions"] = {
            region: {
                "api_url": self._ports.url(f"router-{region}"),
                "sites": {
                    site.cell: {
                        "url": self._ports.url(f"cell-{site.key}"),
                        "keeper_url": self._ports.url(f"keeper-{site.key}"),
                        "database_url": stores.cells[site.key],
                        "valkey_url": stores.cell_valkeys[site.key],
                        "local_url": self._ports.url(f"cell-{site.local}"),
                        "local_database_url": stores.cells[site.local],
                    }
                    for site in sites(self._options)
                    if site.region == region
                },
            }
            for region in REGIONS
        }
        described["ownership_url"] = stores.ownership
        return described


def main() -> int:
    """Run in `CLOCKHOUSE_HOME` (or `.clockhouse-regions`)."""
    os.umask(0o022)
    os.environ.setdefault("CLOCKHOUSE_HOME", str(ROOT / ".clockhouse-regions"))
    home = Home(default_home())
    try:
        home.claim()
    except AlreadyRunning as other:
        print(other, file=sys.stderr)
        return 1
    try:
        options = read_options({"CLOCKHOUSE_CELLS": _CELLS, **os.environ})
        if options.database_url or options.valkey_url or len(options.cell_hosts) > 1:
            raise CannotStart("three regions start engines of their own, and one process of a cell in each")
        return asyncio.run(run(home, options, RegionalInstallation))
    except CannotStart as failure:
        print(f"Clockhouse cannot start: {failure}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
