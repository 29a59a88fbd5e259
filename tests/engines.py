"""A pytest plugin: one PostgreSQL and one Valkey for each pytest process.

Loaded by `-p tests.engines`, before Django's settings are read. Ports and passwords are fixed
at load, so that the settings can name the engines; the engines themselves start when the
first test asks for them and stop with the process. Under xdist every worker has its own.
"""

from __future__ import annotations

import atexit
import os
import secrets
from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path

import certifi
import pytest

from deploy.engines import NOT_DURABLE, Postgres, Valkey, new_password, running, temporary_folder
from deploy.ports import Reservation


class TestEngines:
    """The engines of this process: where they will be, and the switch that starts them."""

    __test__ = False

    def __init__(self) -> None:
        self._stack = ExitStack()
        atexit.register(self._stack.close)
        folder = self._stack.enter_context(temporary_folder())
        postgres_port, valkey_port = Reservation(), Reservation()
        self._stack.callback(postgres_port.release)
        self._stack.callback(valkey_port.release)
        self._folder: Path = folder
        self.postgres = Postgres(
            folder / "postgres", port=postgres_port.port, password=new_password(), settings=NOT_DURABLE
        )
        self.valkey = Valkey(folder / "valkey", port=valkey_port.port, password=new_password(), durable=False)
        self._started = False

    @property
    def authority(self) -> Path:
        """A file with one authority for TLS, in PEM."""
        file = self._folder / "authority.pem"
        if not file.exists():
            first, end, _ = Path(certifi.where()).read_text().partition("-----END CERTIFICATE-----\n")
            file.write_text(first + end)
        return file

    def start(self) -> None:
        """Start both engines, once."""
        if self._started:
            return
        self._started = True
        self._stack.enter_context(running(self.postgres, self._folder / "postgres.log"))
        self._stack.enter_context(running(self.valkey, self._folder / "valkey.log"))

    def database_url(self, name: str) -> str:
        """URL of a database of this PostgreSQL."""
        return self.postgres.url.rsplit("/", 1)[0] + f"/{name}"

    def valkey_url(self, database: int) -> str:
        """URL of a logical database of this Valkey."""
        return self.valkey.url.rsplit("/", 1)[0] + f"/{database}"

    def control_environment(self) -> dict[str, str]:
        """What Django's settings read. The databases are made by pytest-django (`test_…`)."""
        return {
            "CONTROL_DATABASE_URL": self.database_url("control"),
            "CONTROL_OWNERSHIP_URL": self.database_url("ownership"),
            "CONTROL_VALKEY_URL": self.valkey_url(15),
            "CONTROL_SECRET_KEY": secrets.token_hex(32),
            "CONTROL_INSTALLATION_KEY": secrets.token_hex(32),
            "CONTROL_ROUTER_KEY": secrets.token_hex(32),
            "CONTROL_PUBLIC_API_URL": "http://127.0.0.1:1",
            "CONTROL_CONSOLE_URL": "http://127.0.0.1:1",
            "CONTROL_DEBUG": "0",
            "CONTROL_EMAIL_URL": f"file://{self._folder / 'mail'}",
            "CONTROL_EXPORTS": f"file://{self._folder / 'exports'}",
            "CONTROL_LAKE": f"file://{self._folder / 'lake'}",
            "CONTROL_EGRESS_ALLOW": "loopback",
            "CONTROL_ALLOWED_HOSTS": "testserver,127.0.0.1,localhost",
        }


ENGINES = TestEngines()
os.environ.update(ENGINES.control_environment())

#: One authority instead of all the world's, which nobody here calls: to read them costs every HTTP client
#: that is made 40 ms. What tests start inherits it.
os.environ.setdefault("SSL_CERT_FILE", str(ENGINES.authority))

_ROOT = Path(__file__).resolve().parent.parent


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None]:
    """Name Django's settings, unless only tests of the cells (which know no Django) are asked for."""
    asked = early_config.known_args_namespace.file_or_dir
    only_cells = bool(asked) and all("cells" in Path(path.split("::")[0]).parts for path in asked)
    if not only_cells and (_ROOT / "controlplane" / "settings.py").exists():
        os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
    yield
