"""`make run`: the whole product on one machine, in the foreground, until Ctrl-C."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Coroutine, Mapping
from typing import Any

from deploy import children
from deploy.children import CannotStart
from deploy.demo import demo_jobs_now, hello, seed
from deploy.home import ROOT, AlreadyRunning, Home, State, default_home, write_atomically
from deploy.logs import open_log, tail
from deploy.processes import Processes, engine_process
from deploy.settings import (
    Environments,
    Options,
    Ports,
    Stores,
    bootstrap_request,
    cell_hosts,
    cell_url,
    read_options,
)
from deploy.stores import check_given_postgres, claim_given_valkey, create_database, locate, own_engines
from deploy.supervisor import Supervisor


class Installation:
    """One run of the product."""

    def __init__(self, home: Home, options: Options) -> None:
        self._home = home
        self._options = options
        self._hosts = cell_hosts(options)
        self._state: State = home.load()
        self._ports = Ports(self._state)
        self._started = time.monotonic()
        self._dev: dict[str, Any] = {}
        self.supervisor = Supervisor(home, say=self.say, changed=self._write_dev)

    def say(self, text: str) -> None:
        """Tell the person at the terminal; one that was closed must not keep us from stopping."""
        with contextlib.suppress(OSError):
            print(f"{time.monotonic() - self._started:6.1f} s  {text}", flush=True)

    async def up(self) -> None:
        """Start everything, in parallel where nothing waits for something."""
        home, options, state, hosts = self._home, self._options, self._state, self._hosts
        children.end_marked(home.folder)
        engines = own_engines(home, state, self._ports, options)
        stores = locate(state, options, engines)
        environments = Environments(home, state, self._ports, stores)
        processes = Processes(home, environments, self._ports)
        for name in ("router", "django", "echo", *(host.name for host in hosts)):
            self._ports.of(name)
        bootstrap = bootstrap_request(state, self._ports, hosts, stores)
        home.keep(state)  # before anything is encrypted or protected by a secret in it

        async def stores_are_there() -> None:
            await all_of(*(self.supervisor.start(engine_process(engine)) for engine in engines.values()))
            await all_of(*(self._make_database(url, stores) for url in _databases(stores)))
            await self._claim_given_valkeys(stores)

        async def control_plane() -> str:
            await self._manage("migrate", ["setup_database"], environments)
            bootstrapped, *_ = await all_of(
                after_cells(),
                *map(
                    start,
                    (
                        processes.django(),
                        *processes.celery_workers(one=options.one_worker),
                        processes.celery_beat(),
                    ),
                ),
            )
            return str(bootstrapped)

        async def after_cells() -> str:
            await cells_are_up.wait()  # bootstrap tells them about their tenants
            return await self._manage("bootstrap", ["bootstrap"], environments, json.dumps(bootstrap))

        async def data_plane() -> None:
            await all_of(*(start(processes.cell(host)) for host in hosts))
            cells_are_up.set()

        start = self.supervisor.start
        cells_are_up = asyncio.Event()
        await stores_are_there()
        self.say("PostgreSQL and Valkey are up")
        # The router asks Django for its table until Django is there.
        entry = map(start, (processes.router(), processes.echo()))
        placed, *_ = await all_of(control_plane(), data_plane(), *entry)
        self.say("all processes are ready")
        jobs = demo_jobs_now() if options.demo_jobs else []
        await asyncio.to_thread(
            seed, self._ports.url("router"), state.api_key, echo_url=self._ports.url("echo"), jobs=jobs
        )
        self._dev = self._describe(json.loads(placed), stores)
        self._write_dev()
        self._greet()

    async def _make_database(self, url: str, stores: Stores) -> None:
        given = self._options.database_url
        if given is not None and url == stores.control:
            await asyncio.to_thread(check_given_postgres, given)
        admin = given or url.rsplit("/", 1)[0] + "/postgres"
        await asyncio.to_thread(create_database, admin, url)

    async def _claim_given_valkeys(self, stores: Stores) -> None:
        if self._options.valkey_url is None:
            return
        for url in (stores.control_valkey, stores.router_valkey, *stores.cell_valkeys.values()):
            await asyncio.to_thread(claim_given_valkey, url, self._state.installation)

    async def _manage(
        self, name: str, command: list[str], environments: Environments, given: str | None = None
    ) -> str:
        """Run `manage.py`; its output, or `CannotStart` with the end of its log."""
        log = self._home.logs / f"{name}.log"
        log.unlink(missing_ok=True)
        with open_log(self._home.logs, name) as file:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "manage.py",
                *command,
                cwd=ROOT,
                env=environments.control(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                start_new_session=True,
            )
            try:
                output, _ = await process.communicate((given or "").encode())
            except asyncio.CancelledError:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                raise
            file.write(output)
        if process.returncode != 0:
            raise CannotStart(
                f"manage.py {name} failed ({process.returncode}). The end of {log}:\n{tail(log)}"
            )
        return output.decode()

    def _describe(self, placed: Mapping[str, Any], stores: Stores) -> dict[str, Any]:
        return {
            **self._describe_people(placed, stores),
            "cells": {
                name: {
                    "url": self._first_url(name),
                    "hosts": {
                        host.name: self._ports.url(host.name) for host in self._hosts if host.cell == name
                    },
                    "database_url": stores.cells[name],
                    "valkey_url": stores.cell_valkeys[name],
                }
                for name in self._options.cells
            },
        }

    def _describe_people(self, placed: Mapping[str, Any], stores: Stores) -> dict[str, Any]:
        """What is there once, however many regions there are: addresses, sign-in, keys."""
        state = self._state
        return {
            "api_url": self._ports.url("router"),
            "console_url": self._ports.url("django"),
            "echo_url": self._ports.url("echo"),
            "control_database_url": stores.control,
            "curl": hello(self._ports.url("router"), state.api_key),
            "email": state.email,
            "password": state.password,
            "tenant_id": placed["tenant_id"],
            "api_key": state.api_key,
            "operator_email": state.operator_email,
            "operator_password": state.operator_password,
            "operator_api_key": state.operator_api_key,
        }

    def _first_url(self, cell: str) -> str:
        return cell_url(self._ports, self._hosts, cell).split(",")[0]

    def _write_dev(self) -> None:
        if self._dev:
            write_atomically(self._home.dev, {**self._dev, "processes": self.supervisor.pids})

    def _greet(self) -> None:
        dev = self._dev
        print(
            f"""
Clockhouse is up ({time.monotonic() - self._started:.1f} s).

  console    {dev["console_url"]}
             {dev["email"]}  {dev["password"]}
  operator   {dev["operator_email"]}  {dev["operator_password"]}
  API        {dev["api_url"]}
  API key    {dev["api_key"]}

For a terminal, where the README's lines and `.venv/bin/clockhouse` use them:

  export CLOCKHOUSE_API_URL={dev["api_url"]} CLOCKHOUSE_API_KEY={dev["api_key"]}

A first job, called in five seconds; {dev["echo_url"]}/calls shows what arrived:

  {dev["curl"]}

All of this is in {self._home.dev}; logs are in {self._home.logs}.
Ctrl-C stops everything and keeps the data.
""",
            flush=True,
        )


def _databases(stores: Stores) -> list[str]:
    return [stores.control, stores.ownership, *stores.cells.values()]


async def all_of(*work: Coroutine[Any, Any, Any]) -> list[Any]:
    """Run all of it at once; the first failure ends the rest and is raised."""
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def run(home: Home, options: Options, kind: type[Installation] = Installation) -> int:
    """Bring everything up and keep it so until a signal; the exit status."""
    installation = kind(home, options)
    asked_to_stop = asyncio.Event()
    last_signal = 0.0

    def on_signal() -> None:
        nonlocal last_signal
        now = time.monotonic()
        # One Ctrl-C may arrive twice: from the terminal and from make.
        if asked_to_stop.is_set() and now - last_signal > 1:
            installation.say("killing what is left")
            installation.supervisor.kill()
        elif not asked_to_stop.is_set():
            installation.say("stopping (again: at once)")
            asked_to_stop.set()
        last_signal = now

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, on_signal)
    stop = asyncio.create_task(asked_to_stop.wait())
    up = asyncio.create_task(installation.up())
    status = 0
    try:
        await asyncio.wait({up, stop}, return_when=asyncio.FIRST_COMPLETED)
        if up.done():
            up.result()
        await stop
    except CannotStart as failure:
        print(f"\nClockhouse cannot start: {failure}", file=sys.stderr, flush=True)
        status = 1
    finally:
        up.cancel()
        stop.cancel()
        await asyncio.wait({up, stop})
        await installation.supervisor.stop()
        home.dev.unlink(missing_ok=True)
        home.status.unlink(missing_ok=True)
    if status == 0:
        installation.say("stopped")
    return status


def main() -> int:
    """Run the installation in `CLOCKHOUSE_HOME` (or `.clockhouse`)."""
    os.umask(0o022)  # engines that run as `nobody` read what we write for them
    home = Home(default_home())
    try:
        home.claim()
    except AlreadyRunning as other:
        print(other, file=sys.stderr)
        return 1
    try:
        return asyncio.run(run(home, read_options(os.environ)))
    except CannotStart as failure:
        print(f"Clockhouse cannot start: {failure}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
