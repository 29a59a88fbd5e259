"""Which addresses calls to other people's machines may go to. Pure: names are not resolved.

Targets and webhooks lie on the public internet. Everything else (loopback, private, link-local,
shared, multicast and reserved addresses, cloud metadata, and IPv6 forms that carry such an IPv4
address) is refused unless the operator allows it: `loopback`, `private`, or a network such as
`10.20.0.0/16`.
"""

from __future__ import annotations

import functools
import ipaddress
import re
import socket
from collections.abc import Collection
from urllib.parse import urlsplit

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network

#: Metadata and platform services that lie in ranges somebody may allow, or look public.
_METADATA = frozenset(
    ipaddress.ip_address(text)
    for text in (
        "169.254.169.254",  # AWS, GCP, Azure and others
        "169.254.170.2",  # AWS task credentials
        "168.63.129.16",  # Azure platform; a public address
        "100.100.100.200",  # Alibaba
        "192.0.0.192",  # Oracle
        "fd00:ec2::254",  # AWS over IPv6
        "fd20:ce::254",  # GCP over IPv6
    )
)
_PRIVATE: tuple[_Network, ...] = tuple(
    ipaddress.ip_network(text) for text in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7")
)
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
#: All of IPv6 that is routed between networks.
_GLOBAL_IPV6 = ipaddress.ip_network("2000::/3")
#: Parts of a dotted address as `inet_aton` takes them: decimal, octal or hexadecimal.
_LEGACY_IPV4 = re.compile(r"(0x[0-9a-f]*|\d+)(\.(0x[0-9a-f]*|\d+)){0,3}", re.IGNORECASE)


class EgressRefused(OSError):
    """The address is not one that targets may have. A retry would not help."""


def refusal_of_address(text: str, allow: Collection[str] = ()) -> str | None:
    """Why this IP address may not be called, or None if it may."""
    try:
        address: _Address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return "not an IP address"
    return _refusal(address, frozenset(allow))


@functools.lru_cache(maxsize=4096)
def _refusal(address: _Address, allow: frozenset[str]) -> str | None:
    carried = _carried(address)
    if carried is not None:
        return _refusal(carried, allow)
    if any(address in ipaddress.ip_network(word) for word in allow - {"loopback", "private"}):
        return None
    if address in _METADATA:
        return "a metadata address"
    if address.is_unspecified:
        return "the unspecified address"
    if address.is_loopback:
        return None if "loopback" in allow else "a loopback address"
    if address.is_multicast:
        return "a multicast address"
    if address.is_link_local:
        return "a link-local address"
    if any(address in network for network in _PRIVATE):
        return None if "private" in allow else "a private address"
    if isinstance(address, ipaddress.IPv6Address) and address not in _GLOBAL_IPV6:
        return "a reserved address"
    return None if address.is_global else "a reserved address"


def _carried(address: _Address) -> ipaddress.IPv4Address | None:
    """The IPv4 address that an IPv6 one stands for: mapped, 6to4, Teredo, NAT64."""
    if not isinstance(address, ipaddress.IPv6Address):
        return None
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return None


def refusal_of_url(url: str, allow: Collection[str] = ()) -> str | None:
    """Why this URL may not be registered as a target, or None.

    Pure: a name is not resolved (it may not exist yet; the call decides), but literal addresses,
    the odd spellings of them that resolvers understand, and names of this machine are seen.
    """
    try:
        parts = urlsplit(url)
        host = parts.hostname
        _ = parts.port
    except ValueError:
        return "not a URL"
    if parts.scheme not in ("http", "https"):
        return "neither http nor https"
    if not host:
        return "no host"
    if parts.username is not None or parts.password is not None:
        return "credentials do not belong into a URL"
    if parts.fragment or parts.query:
        return "a base URL has neither query nor fragment"
    name = host.rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return None if "loopback" in allow else "a loopback address"
    if ":" in name:
        return refusal_of_address(name, allow)
    if _LEGACY_IPV4.fullmatch(name):
        try:
            return refusal_of_address(socket.inet_ntoa(socket.inet_aton(name)), allow)
        except OSError:
            return "not an IP address"
    return None
