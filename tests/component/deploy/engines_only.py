"""A supervisor of engines alone, as a process that tests may kill."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

from deploy.home import Home
from deploy.processes import engine_process
from deploy.settings import Ports, read_options
from deploy.stores import create_database, locate, own_engines
from deploy.supervisor import Supervisor


async def serve(folder: Path) -> None:
    """Start the engines of a control plane without cells, say where they are, and stay."""
    home = Home(folder)
    home.claim()
    state = home.load()
    options = read_options({"CLOCKHOUSE_CELLS": ","})
    engines = own_engines(home, state, Ports(state), options)
    stores = locate(state, options, engines)
    home.keep(state)
    supervisor = Supervisor(home, say=lambda text: print(text, file=sys.stderr), changed=lambda: None)
    await asyncio.gather(*(supervisor.start(engine_process(engine)) for engine in engines.values()))
    create_database(engines["postgres-control"].url, stores.control)
    pids = [pid for pid in supervisor.pids.values() if pid is not None]
    print(json.dumps({"database": stores.control, "valkey": stores.control_valkey, "pids": pids}), flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    os.umask(0o022)
    asyncio.run(serve(Path(sys.argv[1])))
