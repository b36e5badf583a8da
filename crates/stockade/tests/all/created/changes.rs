//! What `diff` shows.

use serde_json::json;

use super::as_both;

#[test]
fn every_kind_of_change_is_shown() {
    as_both(|yard| {
        yard.file("text", "one\ntwo\nthree\n");
        yard.file("gone", "gone\n");
        yard.file("moved", "these contents are moved as they are\n");
        yard.file("mode", "mode\n");
        yard.file("same", "same\n");
        yard.plant(&yard.work.join("binary"), "a\0b", 0o644);
        let id = yard.create(&["--name", "box"]);
        assert_eq!(yard.says(&["diff", "box"]), "");
        assert_eq!(yard.says(&["diff", "box", "--stat"]), "0 files changed\n");
        yard.inside(
            "box",
            "sed -i s/two/2/ text; rm gone; mv moved there; chmod 755 mode; printf 'a\\0c' >binary; touch same; \
             echo new >new; ln -s text link; mkdir empty; echo hook >.envrc",
        );
        let shown = yard.says(&["diff", "box"]);
        for part in [
            "diff --git a/text b/text\n--- a/text\n+++ b/text\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n",
            "diff --git a/gone b/gone\ndeleted file mode 100644\n--- a/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-gone\n",
            "diff --git a/moved b/there\nsimilarity index 100%\nrename from moved\nrename to there\n",
            "diff --git a/mode b/mode\nold mode 100644\nnew mode 100755\n",
            "Binary files a/binary and b/binary differ (3 bytes, 3 bytes)\n",
            "diff --git a/new b/new\nnew file mode 100644\n--- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+new\n",
            "diff --git a/link b/link\nnew file mode 120000\n",
            "diff --git a/empty b/empty\nnew directory mode 040755\n",
            "(protected) .envrc: ",
        ] {
            assert!(shown.contains(part), "{part:?} is not in\n{shown}");
        }
        assert!(!shown.contains("same"), "{shown}");
        let told = yard.tells(&["diff", "box"]);
        assert_eq!((&told["sandbox_id"], &told["diff"]), (&json!(id), &json!(shown)));
        let kinds: Vec<(&str, &str)> = told["changes"]
            .as_array()
            .expect("an array")
            .iter()
            .map(|change| (change["path"].as_str().expect("a path"), change["kind"].as_str().expect("a kind")))
            .collect();
        assert_eq!(
            kinds,
            [
                (".envrc", "added"),
                ("binary", "modified"),
                ("empty", "added"),
                ("gone", "deleted"),
                ("link", "added"),
                ("mode", "mode"),
                ("new", "added"),
                ("text", "modified"),
                ("there", "renamed"),
            ]
        );
        let stat = yard.says(&["diff", "box", "--stat"]);
        assert!(
            stat.contains("added .envrc (protected)\n") && stat.ends_with("9 files changed, 4 insertions(+), 2 deletions(-)\n"),
            "{stat}"
        );
    });
}

#[test]
fn names_and_contents_cannot_repaint_the_terminal() {
    as_both(|yard| {
        yard.create(&["--name", "box"]);
        yard.inside("box", "echo x >$'evil\\e[2J\\nname'; echo y >$'\\xff'");
        let shown = yard.says(&["diff", "box"]);
        assert!(!shown.contains('\u{1b}') && shown.lines().filter(|line| line.starts_with("diff --git ")).count() == 2, "{shown:?}");
        let stat = yard.says(&["diff", "box", "--stat"]);
        assert!(!stat.contains('\u{1b}') && stat.lines().count() == 3, "{stat:?}");
    });
}

#[test]
fn other_modes_have_nothing_to_show() {
    as_both(|yard| {
        yard.file("a", "host\n");
        yard.create(&["--name", "rw", "--workspace-mode", "rw"]);
        yard.create(&["--name", "ro", "--workspace-mode", "ro"]);
        yard.inside("rw", "echo inside >a");
        assert_eq!(yard.read("a"), "inside\n");
        assert_eq!(yard.exec("ro", "echo x >a").code, Some(1));
        for name in ["rw", "ro"] {
            yard.rejects(&["diff", name], &[&format!("`{name}`"), "nothing is kept apart"]);
            yard.rejects(&["apply", name], &["nothing is kept apart"]);
        }
        yard.says(&["destroy", "rw", "ro"]);
        assert_eq!(yard.read("a"), "inside\n");
    });
}
