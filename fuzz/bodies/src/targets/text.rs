//! Small texts: host patterns, paths, names, sizes and times, control group tables, and the escaping of what a person sees.
//!
//! Each is held against a second reading of the same text that was written for this purpose, or against a law that it must obey.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

use stockade_core::escape::{escape, escape_bytes};
use stockade_core::host::HostPattern;
use stockade_core::id::{SandboxId, SandboxName};
use stockade_core::limits::{BadQuantity, parse_cpus, parse_duration, parse_size};
use stockade_core::path::{MAX_PATH, SafePath};
use stockade_sandbox::limits::hierarchy::Hierarchies;

use crate::input::Input;
use crate::shown::{assert_honest, is_misleading};

/// The first byte says what the rest is.
pub fn body(data: &[u8]) {
    let mut input = Input(data);
    match input.byte() % 6 {
        0 => hosts(input),
        1 => path(input.0),
        2 => names(&String::from_utf8_lossy(input.0)),
        3 => quantities(&String::from_utf8_lossy(input.0)),
        4 => groups(input),
        _ => escaped(input.0),
    }
}

/// Two patterns: each is what it prints, and both match exactly what their intersection matches.
fn hosts(mut input: Input<'_>) {
    let texts = [input.until(0), input.until(0)].map(String::from_utf8_lossy);
    let [one, two] = texts.each_ref().map(|text| HostPattern::parse(text).map_err(|error| assert_honest(&error.to_string(), &[])));
    for pattern in [&one, &two].into_iter().flatten() {
        let shown = pattern.to_string();
        assert_eq!(HostPattern::parse(&shown).as_ref(), Ok(pattern), "{shown}");
        assert!(shown.is_ascii() && shown == shown.to_ascii_lowercase());
        assert_honest(&shown, &[]);
        assert_eq!(pattern.intersection(pattern).as_ref(), Some(pattern));
    }
    let (Ok(one), Ok(two)) = (one, two) else { return };
    let both = one.intersection(&two);
    assert_eq!(both, two.intersection(&one));
    let shown = [&one, &two].map(ToString::to_string);
    let both = both.map(|both| both.to_string());
    for place in shown.iter().flat_map(|pattern| places(pattern)) {
        let expected = shown.iter().all(|pattern| is_match(pattern, &place));
        assert_eq!(both.as_ref().is_some_and(|both| is_match(both, &place)), expected, "{place:?} of {shown:?} and {both:?}");
    }
}

/// Hosts and ports in and around a pattern.
fn places(pattern: &str) -> Vec<(String, u16)> {
    let (host, port) = split(pattern);
    let name = host.strip_prefix("*.").unwrap_or(host);
    let below = name.split_once('.').map_or(name, |(_, rest)| rest);
    let hosts = [name.to_owned(), format!("x.{name}"), format!("y.x.{name}"), format!("x{name}"), below.to_owned()];
    let ports = [80, 443, 81, port.unwrap_or(1)];
    hosts.iter().flat_map(|host| ports.map(|port| (host.clone(), port))).collect()
}

fn is_match(pattern: &str, (host, port): &(String, u16)) -> bool {
    let (name, wanted) = split(pattern);
    let host_fits = match name.strip_prefix('*') {
        Some(end) => host.len() > end.len() && host.ends_with(end),
        None => host == name,
    };
    host_fits && wanted.map_or(matches!(port, 80 | 443), |wanted| wanted == *port)
}

fn split(pattern: &str) -> (&str, Option<u16>) {
    match pattern.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port.parse().expect("a port that was checked"))),
        _ => (pattern, None),
    }
}

fn path(bytes: &[u8]) {
    let path = match SafePath::new(OsStr::from_bytes(bytes)) {
        Ok(path) => path,
        Err(error) => return assert_honest(&error.to_string(), &[]),
    };
    let text = path.as_bytes();
    assert!(text.starts_with(b"/") && text.len() <= MAX_PATH.min(bytes.len()), "{path:?}");
    assert!(text == b"/" || text[1..].split(|byte| *byte == b'/').all(|name| !matches!(name, b"" | b"." | b"..") && name.len() <= 255));
    assert!(!text.iter().any(|byte| *byte < 0x20 || *byte == 0x7f));
    assert_eq!(SafePath::new(&path).as_ref(), Ok(&path), "checked twice is checked once");
    assert_honest(&path.to_string(), &[]);
    // On disk it is JSON.
    let json = serde_json::to_vec(&path).expect("a path is data");
    assert_eq!(serde_json::from_slice::<SafePath>(&json).expect("what was written is read"), path);
    let root = SafePath::new("/").expect("the root");
    assert!(path.is_beneath(&path) && path.is_beneath(&root));
}

fn names(text: &str) {
    match text.parse::<SandboxId>() {
        Ok(id) => assert!(id.as_str().len() == 16 && text.parse::<SandboxName>().is_err(), "a name must not look like an id"),
        Err(error) => assert_honest(&error.to_string(), &[]),
    }
    match text.parse::<SandboxName>() {
        Ok(name) => {
            let parts: Vec<Component<'_>> = Path::new(name.as_str()).components().collect();
            assert!(matches!(parts.as_slice(), [Component::Normal(_)]), "{name} is more than a name");
        }
        Err(error) => assert_honest(&error.to_string(), &[]),
    }
}

fn quantities(text: &str) {
    let error = |error: BadQuantity| assert_honest(&error.to_string(), &[]);
    let sizes: &[(&str, u64)] = &[("", 1), ("b", 1), ("k", 1 << 10), ("m", 1 << 20), ("g", 1 << 30), ("t", 1 << 40)];
    let size_unit = |unit: &str| {
        let unit = unit.to_ascii_lowercase();
        let short = unit.strip_suffix("ib").or_else(|| unit.strip_suffix('b').filter(|rest| !rest.is_empty())).unwrap_or(&unit);
        sizes.iter().find(|(name, _)| *name == short && (unit.is_empty() || !short.is_empty())).map(|(_, size)| *size)
    };
    let time_unit = |unit: &str| match unit {
        "ms" => Some(1),
        "" | "s" => Some(1000),
        "m" | "min" => Some(60_000),
        "h" => Some(3_600_000),
        "d" => Some(86_400_000),
        _ => None,
    };
    if let Ok(size) = parse_size(text).map_err(error) {
        assert_eq!(Some(u128::from(size)), exact(text, size_unit), "{text}");
        assert!((1..=1 << 50).contains(&size));
    }
    if let Ok(time) = parse_duration(text).map_err(error) {
        assert_eq!(Some(time.as_millis()), exact(text, time_unit), "{text}");
    }
    if let Ok(cpus) = parse_cpus(text).map_err(error) {
        assert_eq!(Some(u128::from(cpus)), exact(text, |unit| unit.is_empty().then_some(1000)), "{text}");
    }
}

/// The number times its unit, rounded down, in whole numbers all the way. More digits than 18 after the point are cut off.
fn exact(text: &str, unit: impl Fn(&str) -> Option<u64>) -> Option<u128> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, rest) = text.split_at(end);
    let unit = u128::from(unit(rest)?);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let fraction = fraction.get(..18).unwrap_or(fraction);
    let below = fraction.parse::<u128>().ok()? * unit / 10_u128.pow(fraction.len() as u32);
    whole.parse::<u128>().ok()?.checked_mul(unit)?.checked_add(below)
}

/// Control groups are never looked for above where they are mounted.
fn groups(mut input: Input<'_>) {
    let found = Hierarchies::parse(input.until(0), input.0);
    for place in found.v1.values().chain(&found.v2) {
        assert!(place.mount.is_absolute() && place.directory.starts_with(&place.mount), "{place:?}");
        let below = place.directory.strip_prefix(&place.mount).expect("it is beneath");
        assert!(below.components().all(|part| matches!(part, Component::Normal(_))), "{place:?}");
    }
}

fn escaped(bytes: &[u8]) {
    let shown = escape_bytes(bytes);
    assert_honest(&shown, &[]);
    assert_eq!(escape(&shown), shown, "what is safe stays as it is");
    if let Ok(text) = std::str::from_utf8(bytes) {
        assert_eq!(escape(text), shown);
        assert_eq!(shown == text, !text.chars().any(is_misleading), "{text:?}");
    }
}

/// Good and bad ones of each kind.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds: Vec<Vec<u8>> = Vec::new();
    for (one, two) in [
        ("example.com", "*.example.com:8443"),
        ("*.a.example", "x.a.example:443"),
        ("127.0.0.1:3000", "[::1]:80"),
        ("[fe80::1]", "*.com"),
        ("xn--bcher-kva.example:80", "1.2.3.256"),
        ("a..b", "0x7f.1"),
    ] {
        seeds.push([&[0], one.as_bytes(), &[0], two.as_bytes()].concat());
    }
    for path in ["/", "/a//b/./c/", "/usr/lib/x86_64-linux-gnu", "/a/../b", "relative", "/\u{202e}x", "/a\nb", "//", "/.."] {
        seeds.push([&[1], path.as_bytes()].concat());
    }
    for name in ["my-box.1", "0123456789abcdef", "-x", "../x", "a b", "."] {
        seeds.push([&[2], name.as_bytes()].concat());
    }
    for text in
        ["512M", "1.5G", "10KiB", "0.29s", "1.001", "90", "7d", "0.1ms", "0.3h", "99999999999999999999", "1.", ".5", "0.0001t", "8192"]
    {
        seeds.push([&[3], text.as_bytes()].concat());
    }
    for (cgroup, mountinfo) in [
        ("0::/user.slice/a.scope\n", "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n"),
        (
            "5:memory:/docker/abc\n3:pids:/..\n2:cpu,cpuacct,cpuset:/x\n0::/\n",
            "40 30 0:30 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n41 30 0:31 / /a\\040b rw - cgroup cgroup rw,pids\n42 30 0:32 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct,cpuset\n",
        ),
        ("0::/../..\n1:name=x:/a/../b\n", "1 1 0:1 /.. / rw - cgroup2 none rw\n2 1 0:2 /a /b rw master:1 - cgroup none rw,memory\n"),
    ] {
        seeds.push([&[4], cgroup.as_bytes(), &[0], mountinfo.as_bytes()].concat());
    }
    for text in ["plain ä 漢", "a\u{202e}b\u{200b}c\u{1b}[2J\n", "\u{1d173}\u{e0001}\u{feff}\u{85}", "\\u{202e}"] {
        seeds.push([&[5], text.as_bytes()].concat());
    }
    seeds.push(b"\x05ok\xff\xfe\xe2\x80".to_vec());
    seeds
}
