import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cells.execution.egress import refusal_of_address, refusal_of_url

REFUSED = {
    "127.0.0.1": "loopback",
    "127.255.255.254": "loopback",
    "::1": "loopback",
    "::ffff:127.0.0.1": "loopback",
    "2002:7f00:1::": "loopback",
    "64:ff9b::127.0.0.1": "loopback",
    "10.0.0.1": "private",
    "172.31.255.255": "private",
    "192.168.1.1": "private",
    "fd12::1": "private",
    "::ffff:10.0.0.1": "private",
    "169.254.1.1": "link-local",
    "fe80::1": "link-local",
    "fe80::1%eth0": "link-local",
    "169.254.169.254": "metadata",
    "::ffff:169.254.169.254": "metadata",
    "168.63.129.16": "metadata",
    "fd00:ec2::254": "metadata",
    "224.0.0.1": "multicast",
    "ff02::1": "multicast",
    "0.0.0.0": "unspecified",
    "::": "unspecified",
    "100.64.0.1": "reserved",
    "192.0.2.1": "reserved",
    "255.255.255.255": "reserved",
    "::127.0.0.1": "reserved",
    "64:ff9b:1::1": "reserved",
    "fec0::1": "reserved",
    "example": "not an IP",
}


@pytest.mark.parametrize(("address", "why"), REFUSED.items())
def test_refused(address: str, why: str) -> None:
    refusal = refusal_of_address(address)
    assert refusal is not None
    assert why in refusal


@pytest.mark.parametrize("address", ["8.8.8.8", "2606:4700:4700::1111", "::ffff:8.8.8.8"])
def test_public_addresses_are_allowed(address: str) -> None:
    assert refusal_of_address(address) is None


def test_what_the_operator_allows() -> None:
    assert refusal_of_address("127.0.0.1", {"loopback"}) is None
    assert refusal_of_address("10.0.0.1", {"loopback"}) is not None
    assert refusal_of_address("10.0.0.1", {"private"}) is None
    assert refusal_of_address("fd00:ec2::254", {"private"}) == "a metadata address"
    assert refusal_of_address("169.254.169.254", {"loopback", "private"}) == "a metadata address"
    assert refusal_of_address("10.20.1.1", {"10.20.0.0/16"}) is None
    assert refusal_of_address("10.21.1.1", {"10.20.0.0/16"}) == "a private address"


@given(st.ip_addresses(v=4))
def test_a_mapped_address_is_judged_as_what_it_stands_for(address: ipaddress.IPv4Address) -> None:
    for carrier in (f"::ffff:{address}", f"64:ff9b::{address}"):
        assert refusal_of_address(carrier) == refusal_of_address(str(address))


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost/",
        "http://LOCALHOST.:8080",
        "http://app.localhost",
        "http://127.0.0.1/x",
        "http://127.1/",
        "http://2130706433",
        "http://0x7f000001",
        "http://0177.0.0.1",
        "http://[::1]/",
        "http://[::ffff:7f00:1]/",
    ],
)
def test_spellings_of_this_machine(url: str) -> None:
    assert refusal_of_url(url) == "a loopback address"
    assert refusal_of_url(url, {"loopback"}) is None


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("ftp://example.com", "neither http nor https"),
        ("example.com", "neither http nor https"),
        ("http://", "no host"),
        ("http://user:pw@example.com", "credentials do not belong into a URL"),
        ("http://example.com:99999", "not a URL"),
        ("http://[::1", "not a URL"),
        ("https://example.com/x?y=1", "a base URL has neither query nor fragment"),
        ("https://169.254.169.254", "a metadata address"),
    ],
)
def test_urls_that_cannot_be_targets(url: str, why: str) -> None:
    assert refusal_of_url(url) == why


@pytest.mark.parametrize(
    "url", ["https://hooks.example.com/in", "http://no-such-name.example:8080", "https://8.8.8.8"]
)
def test_urls_that_can(url: str) -> None:
    assert refusal_of_url(url) is None
