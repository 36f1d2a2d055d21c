"""Which network addresses a picture may be fetched from: public ones, and what the operator lists."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# Special-purpose blocks (IANA registries) that some versions of `ipaddress` take for public in whole or part.
# Among 192.0.0.0/24 are addresses at which clouds serve credentials.
_SPECIAL = tuple(
    ipaddress.ip_network(n) for n in ("192.0.0.0/24", "192.88.99.0/24", "2001::/23", "3fff::/20")
)
_GLOBAL_UNICAST_V6 = ipaddress.IPv6Network("2000::/3")
# Prefixes whose last 32 bits are an IPv4 address that a translator connects to (RFC 6052). Not 64:ff9b:1::/48
# (RFC 8215): where a translator of one's own reads the address there, only its prefix length tells. Like all
# outside the global unicast space it is not public.
_TRANSLATED = tuple(ipaddress.IPv6Network(n) for n in ("64:ff9b::/96", "::ffff:0:0:0/96"))


def parse_address(text: str) -> Address:
    """An address as `getaddrinfo` gives it, without its zone. Raises ValueError."""
    return ipaddress.ip_address(text.partition("%")[0])


def is_public(address: Address) -> bool:
    """Whether `address` is on the public internet, and any IPv4 address that it stands for is too."""
    inner = _embedded(address) if isinstance(address, ipaddress.IPv6Address) else None
    if inner is not None:
        return is_public(inner)
    if any(address in network for network in _SPECIAL):
        return False
    if isinstance(address, ipaddress.IPv4Address):
        return address.is_global and not address.is_multicast and not address.is_reserved
    return address in _GLOBAL_UNICAST_V6 and address.is_global and not address.is_multicast


def _embedded(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """The IPv4 address that packets to `address` end up at, for mapped, 6to4, Teredo and NAT64 addresses."""
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    if any(address in network for network in _TRANSLATED):
        return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    return None


def normal_host(host: str) -> str:
    """A host name to compare by: lower case, without brackets and without the trailing dot."""
    return host.strip("[]").rstrip(".").lower()


@dataclass(frozen=True, slots=True)
class AllowList:
    """Exceptions from "public addresses only": hosts, `host:port`, and networks in CIDR notation."""

    hosts: frozenset[tuple[str, int | None]] = frozenset()
    networks: tuple[Network, ...] = ()

    @classmethod
    def parse(cls, entries: tuple[str, ...]) -> AllowList:
        """Raises ValueError that names a bad entry."""
        hosts: set[tuple[str, int | None]] = set()
        networks: list[Network] = []
        for entry in entries:
            try:
                networks.append(ipaddress.ip_network(entry.strip("[]")))
                continue
            except ValueError:
                pass
            host, colon, port = entry.rpartition(":")
            if not colon:
                host, port = entry, ""
            if not host or "/" in entry or (colon and not port.isdigit()):
                raise ValueError(f"{entry!r} is not a host, host:port or network (CIDR)")
            hosts.add((normal_host(host), int(port) if port else None))
        return cls(frozenset(hosts), tuple(networks))

    def has_host(self, host: str, port: int) -> bool:
        name = normal_host(host)
        return (name, None) in self.hosts or (name, port) in self.hosts

    def has_port(self, host: str, port: int) -> bool:
        """Whether this very port of `host` was listed."""
        return (normal_host(host), port) in self.hosts

    def has_address(self, address: Address) -> bool:
        return any(address in network for network in self.networks)
