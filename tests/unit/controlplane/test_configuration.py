"""The environment is read once and what is wrong is named."""

from __future__ import annotations

import pytest

from controlplane.configuration import ConfigurationError, django_database, read_configuration

GOOD = {
    "CONTROL_DATABASE_URL": "postgresql://u:p%40ss@db:5433/control?application_name=x",
    "CONTROL_OWNERSHIP_URL": "postgresql://db/ownership",
    "CONTROL_VALKEY_URL": "redis://v",
    "CONTROL_SECRET_KEY": "s",
    "CONTROL_INSTALLATION_KEY": "11" * 32 + "," + "22" * 32,
    "CONTROL_ROUTER_KEY": "33" * 32,
    "CONTROL_EMAIL_URL": "smtp://mail.example.com",
}


def test_what_is_good_is_read() -> None:
    read = read_configuration({**GOOD, "CONTROL_ALLOWED_HOSTS": "a, b"})
    assert read.installation_keys == (b"\x11" * 32, b"\x22" * 32)
    assert read.router_key == b"\x33" * 32
    assert (read.allowed_hosts, read.debug) == (("a", "b"), False)


@pytest.mark.parametrize("name", sorted(GOOD))
def test_what_is_missing_is_named(name: str) -> None:
    with pytest.raises(ConfigurationError, match=name):
        read_configuration({k: v for k, v in GOOD.items() if k != name})


@pytest.mark.parametrize("value", ["xyz", "11" * 31])
def test_keys_must_be_keys(value: str) -> None:
    with pytest.raises(ConfigurationError, match="CONTROL_ROUTER_KEY"):
        read_configuration({**GOOD, "CONTROL_ROUTER_KEY": value})


def test_without_debug_mails_do_not_end_in_the_log() -> None:
    silent = {**GOOD, "CONTROL_EMAIL_URL": ""}
    with pytest.raises(ConfigurationError, match="reset passwords"):
        read_configuration(silent)
    assert read_configuration({**silent, "CONTROL_DEBUG": "1"}).email_url == ""


def test_mails_go_only_where_we_can_send_them() -> None:
    with pytest.raises(ConfigurationError, match="must begin with one of smtp, smtps"):
        read_configuration({**GOOD, "CONTROL_EMAIL_URL": "http://mail.example.com"})


def test_a_database_url_becomes_djangos_settings() -> None:
    assert django_database(GOOD["CONTROL_DATABASE_URL"]) == {
        "HOST": "db", "PORT": "5433", "USER": "u", "PASSWORD": "p@ss", "NAME": "control",
        "OPTIONS": {"application_name": "x"},
    }  # fmt: skip
