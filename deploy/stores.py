"""The databases and logical Valkeys of an installation: on engines of ours, or on given servers."""

from __future__ import annotations

from urllib.parse import urlsplit, urlunsplit

import psycopg
import redis
from psycopg import sql

from deploy import children
from deploy.children import CannotStart
from deploy.engines import Engine, Postgres, Valkey
from deploy.home import Home, State
from deploy.settings import Options, Ports, Stores

_CLAIM = "clockhouse:installation"


def own_engines(home: Home, state: State, ports: Ports, options: Options) -> dict[str, Engine]:
    """The engines to start, by name; none for what is given."""
    engines: dict[str, Engine] = {}
    for part in ("control", *options.cells):
        if options.database_url is None:
            name = f"postgres-{part}"
            # Before its port is asked for: what a killed supervisor left may still hold it.
            children.end_leftovers(home.folder / name / "data", "postgres")
            engines[name] = Postgres(
                home.folder / name, name=name, port=ports.of(name), password=state.engine_password(name)
            )
        if options.valkey_url is None:
            name = f"valkey-{part}"
            children.end_leftovers(home.folder / name / "data", "valkey-server")
            engines[name] = Valkey(
                home.folder / name, name=name, port=ports.of(name), password=state.engine_password(name)
            )
    return engines


def locate(state: State, options: Options, engines: dict[str, Engine]) -> Stores:
    """Where every store is."""

    def database(part: str, name: str) -> str:
        if options.database_url is not None:
            unique = f"clockhouse_{state.installation}_{name if part == 'control' else part}"
            return with_path(options.database_url, unique.replace("-", "_"))
        return with_path(engines[f"postgres-{part}"].url, name)

    def valkey(part: str, number: int) -> str:
        if options.valkey_url is not None:
            first = int(urlsplit(options.valkey_url).path.strip("/") or "0")
            offset = number if part == "control" else 2 + options.cells.index(part)
            return with_path(options.valkey_url, str(first + offset))
        return with_path(engines[f"valkey-{part}"].url, str(number))

    return Stores(
        control=database("control", "control"),
        ownership=database("control", "ownership"),
        cells={name: database(name, "cell") for name in options.cells},
        control_valkey=valkey("control", 0),
        router_valkey=valkey("control", 1),
        cell_valkeys={name: valkey(name, 0) for name in options.cells},
    )


def with_path(url: str, path: str) -> str:
    """The URL with another database."""
    return urlunsplit(urlsplit(url)._replace(path=f"/{path}"))


def create_database(admin_url: str, url: str) -> None:
    """Make the database that `url` names, unless it is there."""
    name = urlsplit(url).path.strip("/")
    try:
        with psycopg.connect(admin_url, autocommit=True, connect_timeout=10) as admin:
            if admin.execute("SELECT FROM pg_database WHERE datname = %s", (name,)).fetchone() is None:
                admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    except psycopg.Error as failure:
        raise CannotStart(f"the database {name} cannot be made: {failure}") from failure


def check_given_postgres(url: str) -> None:
    """Refuse a given server that is too old."""
    try:
        with psycopg.connect(url, connect_timeout=10) as admin:
            version = admin.info.server_version
    except psycopg.Error as failure:
        raise CannotStart(f"CLOCKHOUSE_DATABASE_URL cannot be used: {failure}") from failure
    if version < 180000:
        raise CannotStart(f"CLOCKHOUSE_DATABASE_URL: PostgreSQL 18 is needed, this is {version // 10000}.")


def claim_given_valkey(url: str, installation: str) -> None:
    """Mark a logical database as this installation's; refuse one that holds something else."""
    try:
        with redis.Redis.from_url(url, socket_timeout=10, decode_responses=True) as client:
            owner = client.get(_CLAIM)
            if owner is None and client.dbsize() == 0:
                client.set(_CLAIM, installation)
            elif owner != installation:
                number = urlsplit(url).path.strip("/")
                raise CannotStart(
                    f"CLOCKHOUSE_VALKEY_URL: logical database {number} is not empty and not ours."
                    " End the URL with the number of the first of a free row of databases."
                )
    except redis.RedisError as failure:
        raise CannotStart(f"CLOCKHOUSE_VALKEY_URL cannot be used: {failure}") from failure
