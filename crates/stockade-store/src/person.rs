//! Who runs Stockade, by the account's name. The environment is not asked: anybody can set `USER`.

use std::io::Read;
use std::sync::OnceLock;

/// Where accounts are listed.
const ACCOUNTS: &str = "/etc/passwd";
/// Longer than any list of accounts that is looked at.
const MAX_BYTES: u64 = 4 << 20;
/// What most lists fit into, so that they are read in one go.
const USUAL: usize = 8 << 10;

/// The name of the account that this process belongs to, or its number where it has none. It is looked up once: a process keeps its account.
pub fn name() -> String {
    static NAME: OnceLock<String> = OnceLock::new();
    NAME.get_or_init(look_up).clone()
}

/// The name of an account, or its number where it has none.
pub fn name_of(uid: u32) -> String {
    accounts().and_then(|text| of(&text, uid)).unwrap_or_else(|| uid.to_string())
}

/// The number of the account of that name.
pub fn uid_of(name: &str) -> Option<u32> {
    let text = accounts()?;
    text.lines().find_map(|line| {
        let mut fields = line.split(':');
        fields.next().filter(|known| *known == name)?;
        fields.nth(1)?.parse().ok()
    })
}

fn look_up() -> String {
    name_of(rustix::process::getuid().as_raw())
}

fn accounts() -> Option<String> {
    let mut text = Vec::with_capacity(USUAL);
    let read = std::fs::File::open(ACCOUNTS).and_then(|file| file.take(MAX_BYTES).read_to_end(&mut text));
    read.ok().map(|_| String::from_utf8_lossy(&text).into_owned())
}

fn of(accounts: &str, uid: u32) -> Option<String> {
    accounts.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next().filter(|name| !name.is_empty())?;
        let number: u32 = fields.nth(1)?.parse().ok()?;
        (number == uid).then(|| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_account_of_a_number_is_it() {
        let accounts = "broken\n:x:0:0\nroot:x:0:0:root:/root:/bin/bash\ntoor:x:0:0::/:/bin/sh\nme:x:1000:1000::/:/bin/sh\n";
        assert_eq!((of(accounts, 0).as_deref(), of(accounts, 1000).as_deref(), of(accounts, 7)), (Some("root"), Some("me"), None));
    }
}
