//! Many at once.

use std::collections::BTreeSet;

use super::as_both;
use crate::wall::ground::eventually;

/// Does something on several threads; the results in order.
fn at_once<T: Send>(count: usize, act: impl Fn(usize) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let act = &act;
        let threads: Vec<_> = (0..count).map(|i| scope.spawn(move || act(i))).collect();
        threads.into_iter().map(|thread| thread.join().expect("joined")).collect()
    })
}

#[test]
fn twenty_clients_of_one_sandbox() {
    as_both(|yard| {
        yard.create(&["--name", "box"]);
        let said = at_once(20, |i| match i % 4 {
            0 => yard.inside("box", &format!("sleep 0.2; echo {i}")),
            1 => yard.inside("box", &format!("head -c 300000 /dev/zero | wc -c; echo {i} >f{i}; cat f{i}")),
            2 => yard.sandbox(&["exec", "--json", "box", "--", "bash", "-c", &format!("sleep 0.1; echo {i}")]).stdout,
            _ => yard.says(&["read", "box", "/etc/hostname"]),
        });
        for (i, text) in said.iter().enumerate() {
            match i % 4 {
                0 => assert_eq!(*text, format!("{i}\n")),
                1 => assert_eq!(*text, format!("300000\n{i}\n")),
                2 => assert!(text.contains(&format!(r#""stdout":"{i}\n""#)), "{text}"),
                _ => assert!(!text.is_empty()),
            }
        }
    });
}

#[test]
fn fifty_sandboxes() {
    as_both(|yard| {
        let ids: Vec<String> = at_once(10, |_| (0..5).map(|_| yard.create(&[])).collect::<Vec<_>>()).concat();
        assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), 50);
        let listed = yard.tells(&["list"]);
        let running = listed["sandboxes"].as_array().expect("an array").iter().filter(|s| s["status"] == "running").count();
        assert_eq!(running, 50);
        at_once(10, |i| {
            for id in &ids[i * 5..i * 5 + 5] {
                assert_eq!(yard.inside(id, &format!("echo {id} >f; cat f")), format!("{id}\n"));
            }
        });
        assert!(!yard.work.join("f").exists());
        let words: Vec<&str> = std::iter::once("destroy").chain(ids.iter().map(String::as_str)).collect();
        assert_eq!(yard.says(&words), "");
        assert_eq!(yard.sandboxes(), Vec::<String>::new());
        eventually("nothing is left", || ids.iter().all(|id| crate::wall::ground::processes(&super::hold_of(id)).is_empty()));
        assert_eq!(yard.remains(&ids[49]), Vec::<String>::new());
    });
}
