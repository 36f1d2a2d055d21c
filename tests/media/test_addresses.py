import ipaddress

import pytest

from media.fetch.addresses import AllowList, is_public, parse_address


@pytest.mark.parametrize(
    "text",
    [
        "127.0.0.1", "127.255.255.254", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254",
        "100.64.0.1", "100.100.100.200", "192.0.0.1", "198.18.0.1", "192.0.2.1", "203.0.113.9", "224.0.0.1",
        "239.255.255.250", "240.0.0.1", "255.255.255.255", "::", "::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1",
        "::127.0.0.1", "::ffff:0:127.0.0.1", "64:ff9b::127.0.0.1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::a00:1",
        "64:ff9b:1::808:808", "64:ff9b:1:808:8:800::", "64:ff9b:1:ffff:ffff:ffff:808:808",
        "2002:7f00:1::", "2002:a9fe:a9fe::1", "2001:0:4136:e378:8000:63bf:80ff:fffe", "fe80::1",
        "192.0.0.8", "192.0.0.192", "192.88.99.1", "2001:2::1", "3fff::1",
        "fe80::1%eth0", "fc00::1", "fd00:ec2::254", "fec0::1", "ff02::1", "2001:db8::1", "100::1",
    ],
)  # fmt: skip
def test_addresses_that_are_not_public(text: str) -> None:
    assert not is_public(parse_address(text))


@pytest.mark.parametrize(
    "text",
    ["8.8.8.8", "1.1.1.1", "193.99.144.80", "2606:4700:4700::1111", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8"],
)
def test_addresses_that_are_public(text: str) -> None:
    assert is_public(parse_address(text))


def test_an_allow_list_has_hosts_ports_and_networks() -> None:
    allow = AllowList.parse(("files.local", "Other.Local.:9000", "10.0.0.0/8", "fd00::/8", "192.168.1.5"))
    assert allow.has_host("FILES.local.", 1234) and not allow.has_port("files.local", 1234)
    assert allow.has_host("other.local", 9000) and not allow.has_host("other.local", 80)
    assert allow.has_port("other.local", 9000)
    for number in ("10.2.3.4", "fd00::7", "192.168.1.5"):
        assert allow.has_address(ipaddress.ip_address(number))
    assert not allow.has_address(ipaddress.ip_address("192.168.1.6"))


@pytest.mark.parametrize("entry", ["", "10.0.0.0/99", "host:port", "a/b", ":80"])
def test_a_bad_entry_of_the_allow_list_is_named(entry: str) -> None:
    with pytest.raises(ValueError, match="is not a host, host:port or network"):
        AllowList.parse((entry,))
