"""`make dev-stop NAME=…`, `dev-start` and `dev-status`: single processes of a running installation."""

from __future__ import annotations

import argparse
import sys
import time

from deploy.home import Home, default_home, read_json
from deploy.processes import read_status

_PATIENCE_SECONDS = 60.0


class Refused(Exception):
    """It cannot be done; the message says why."""


def set_wanted(home: Home, name: str, *, up: bool, kill: bool = False) -> None:
    """Ask the supervisor to keep a process down, or up again, and wait until it is so.

    With `kill`, a process that goes down is not asked but killed.
    """
    if not home.is_claimed():
        raise Refused(f"Nothing runs in {home.folder}. Start it with `make run`.")
    known = conditions(home)
    if name not in known:
        raise Refused(f"There is no process {name!r}. Known: {', '.join(known) or 'none yet'}.")
    request = home.down / name
    if up:
        request.unlink(missing_ok=True)
    else:
        request.write_text("KILL" if kill else "TERM")
    wanted = "ready" if up else "stopped"
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while (condition := conditions(home).get(name)) != wanted:
        if time.monotonic() > deadline:
            raise Refused(f"{name} is still {condition} after {_PATIENCE_SECONDS:.0f} s; see its log.")
        if not home.is_claimed():
            raise Refused("The supervisor has ended meanwhile.")
        time.sleep(0.05)


def conditions(home: Home) -> dict[str, str]:
    """What each process does now."""
    processes = read_json(home.status).get("processes", {})
    return {name: process["condition"] for name, process in processes.items()}


def main(arguments: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="ctl", description=__doc__)
    parser.add_argument("verb", choices=["stop", "start", "status"])
    parser.add_argument("name", nargs="?", default="")
    chosen = parser.parse_args(arguments)
    home = Home(default_home())
    try:
        if chosen.verb == "status":
            ports = home.load().ports
            for name, process in read_json(home.status).get("processes", {}).items():
                pid = process["pid"] or "-"
                print(f"{name:28} {process['condition']:9} pid {pid:<8} restarts {process['restarts']}")
                if name.startswith("keeper-") and (told := read_status(ports.get(name, 0))):
                    owns = ", owns the cell" if told["owns"] else ""
                    print(f"{'':28} {told['act']}: {told['why']}; {told['cluster']}{owns}")
        else:
            set_wanted(home, chosen.name, up=chosen.verb == "start")
            print(f"{chosen.name} is {'up' if chosen.verb == 'start' else 'down'}")
    except Refused as why:
        print(why, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
