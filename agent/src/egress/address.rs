//! Addresses that a public name must never lead to: the host itself, its networks, and everything that is no unicast
//! address of the public Internet.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Why the proxy refuses to connect to this address for an entry that the operator did not mark as trusted; `None` for a
/// public unicast address.
#[must_use]
pub fn refusal(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(v4) => refusal_v4(v4),
        IpAddr::V6(v6) => refusal_v6(v6),
    }
}

fn refusal_v4(address: Ipv4Addr) -> Option<&'static str> {
    let [a, b, c, _] = address.octets();
    match (a, b, c) {
        (0, ..) => Some("unspecified-address"),
        (127, ..) => Some("loopback-address"),
        (169, 254, _) => Some("link-local-address"), // cloud metadata services live here
        (10, ..) | (192, 168, _) | (172, 16..=31, _) => Some("private-address"),
        (100, 64..=127, _) => Some("carrier-nat-address"), // and the metadata service of one cloud
        (192, 0, 0 | 2) | (192, 88, 99) | (198, 18 | 19, _) | (198, 51, 100) | (203, 0, 113) => {
            Some("reserved-address")
        }
        (224..=239, ..) => Some("multicast-address"),
        (240.., ..) => Some("reserved-address"),
        _ => None,
    }
}

fn refusal_v6(address: Ipv6Addr) -> Option<&'static str> {
    let s = address.segments();
    let embedded = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        Ipv4Addr::new(a, b, c, d)
    };
    if address.is_unspecified() {
        Some("unspecified-address")
    } else if address.is_loopback() {
        Some("loopback-address")
    } else if s[..5] == [0; 5] && s[5] == 0xffff {
        Some("v4-mapped-address")
    } else if s[..6] == [0; 6] {
        Some("reserved-address") // v4-compatible
    } else if s[..6] == [0x64, 0xff9b, 0, 0, 0, 0] {
        refusal_v4(embedded(s[6], s[7])) // NAT64: as good as the address inside
    } else if s[0] == 0x2002 {
        refusal_v4(embedded(s[1], s[2])) // 6to4
    } else if s[0] & 0xfe00 == 0xfc00 {
        Some("private-address")
    } else if s[0] & 0xffc0 == 0xfe80 {
        Some("link-local-address")
    } else if s[0] & 0xff00 == 0xff00 {
        Some("multicast-address")
    } else if s[0] & 0xe000 != 0x2000 || s[..2] == [0x2001, 0x0db8] || s[..2] == [0x2001, 0] {
        Some("reserved-address") // outside global unicast, documentation, Teredo
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_public_unicast_addresses_pass() {
        for (text, expected) in [
            ("1.1.1.1", None),
            ("100.63.255.255", None),
            ("172.32.0.1", None),
            ("2606:4700::1111", None),
            ("64:ff9b::1.1.1.1", None),
            ("0.0.0.0", Some("unspecified-address")),
            ("127.9.9.9", Some("loopback-address")),
            ("10.0.0.1", Some("private-address")),
            ("172.16.0.1", Some("private-address")),
            ("192.168.1.1", Some("private-address")),
            ("169.254.169.254", Some("link-local-address")),
            ("100.100.100.200", Some("carrier-nat-address")),
            ("224.0.0.1", Some("multicast-address")),
            ("255.255.255.255", Some("reserved-address")),
            ("192.0.2.1", Some("reserved-address")),
            ("::", Some("unspecified-address")),
            ("::1", Some("loopback-address")),
            ("::ffff:1.1.1.1", Some("v4-mapped-address")),
            ("::ffff:127.0.0.1", Some("v4-mapped-address")),
            ("::127.0.0.1", Some("reserved-address")),
            ("64:ff9b::10.0.0.1", Some("private-address")),
            ("2002:7f00:1::", Some("loopback-address")),
            ("fd00:ec2::254", Some("private-address")),
            ("fe80::1", Some("link-local-address")),
            ("fec0::1", Some("reserved-address")),
            ("ff02::1", Some("multicast-address")),
            ("2001:db8::1", Some("reserved-address")),
            ("100::1", Some("reserved-address")),
        ] {
            assert_eq!(refusal(text.parse().unwrap()), expected, "{text}");
        }
    }
}
