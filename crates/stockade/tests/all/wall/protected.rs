//! Files that run code outside later, in a workspace that is written at once.

use super::{Ground, as_both};

const RW: [&str; 2] = ["--workspace-mode", "rw"];

fn repository(ground: &Ground) {
    ground.plant(&ground.home.join(".gitconfig"), "[user]\n\tname = A\n\temail = a@b\n", 0o644);
    ground.host("git init -q -b main . && git commit -q --allow-empty -m one");
}

/// A linked worktree outside the workspace.
fn worktree(ground: &Ground) -> std::path::PathBuf {
    ground.directory(&ground.base.join("trees"));
    ground.host("git worktree add -q ../trees/linked 2>/dev/null");
    ground.base.join("trees/linked")
}

#[test]
fn git_commit_works() {
    as_both(|ground| {
        repository(ground);
        let outcome = ground.sh(&RW, "echo x >x && git add x && git commit -q -m two && git checkout -q -b side && git tag t && git gc -q");
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        assert_eq!(ground.host("git log --format=%s; git branch --show-current; git status --porcelain; git fsck"), "two\none\nside\n");
        assert_eq!(ground.sandboxes(), Vec::<String>::new());
    });
}

#[test]
fn a_git_setting_goes_to_a_private_copy_and_is_reported() {
    as_both(|ground| {
        repository(ground);
        let before = ground.read(".git/config");
        let script = "git config x.y z && git config x.y && git config core.fsmonitor ./evil && git remote add origin ../other && git branch -q side && git config branch.side.remote origin";
        let (code, value) = ground.json(&RW, &["bash", "-c", script]);
        assert_eq!((code, value["stdout"].as_str()), (0, Some("z\n")), "{value}");
        assert_eq!(ground.read(".git/config"), before);
        assert!(value["violations"].to_string().contains(".git/config"), "{value}");
        assert_eq!(ground.host("ls -A"), ".git\n");
        assert_eq!(ground.host("ls .git | grep -i -e lock -e config || true"), "config\n");
    });
}

#[test]
fn existing_protected_files_cannot_be_written_or_moved_away() {
    as_both(|ground| {
        repository(ground);
        for name in [
            ".envrc",
            ".mcp.json",
            ".vscode/settings.json",
            ".claude/settings.json",
            ".husky/pre-commit",
            ".git/hooks/post-checkout",
            "sub/.envrc",
            ".gitmodules",
        ] {
            ground.file(name, "good\n");
        }
        let before = ground.snapshot();
        let script = "for f in .envrc .mcp.json .vscode/settings.json .claude/settings.json .husky/pre-commit .git/hooks/post-checkout sub/.envrc .gitmodules; do \
                      { echo evil >$f; } 2>/dev/null && echo wrote $f; rm -f $f 2>/dev/null && echo removed $f; mv $f $f-moved 2>/dev/null && echo moved $f; \
                      ln -sf /tmp/evil $f 2>/dev/null && echo linked $f; chmod 777 $f 2>/dev/null && echo mode $f; done; \
                      for d in .git .git/hooks .vscode .claude .husky sub; do mv $d $d-moved 2>/dev/null && echo moved $d; rm -rf $d/hooks 2>/dev/null && [ ! -e $d/hooks ] && [ $d = .git ] && echo removed $d/hooks; done; \
                      echo evil >.git/hooks/new 2>/dev/null && echo made a hook; true";
        let outcome = ground.sh(&RW, script);
        assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(0), ""), "{outcome:?}");
        assert_eq!(ground.snapshot(), before);
    });
}

#[test]
fn new_protected_files_are_taken_away_and_reported() {
    as_both(|ground| {
        repository(ground);
        let made = [".envrc", ".mcp.json", ".vscode/tasks.json", ".claude", ".stockade", ".husky", "deep/er/.envrc", ".bashrc"];
        let script = "echo fine >fine; for f in .envrc .mcp.json .vscode/tasks.json .claude/settings.json .stockade/settings.json .husky/pre-push deep/er/.envrc .bashrc; do mkdir -p $(dirname $f); echo evil >$f; done";
        let (code, value) = ground.json(&RW, &["bash", "-c", script]);
        assert_eq!((code, ground.read("fine").as_str()), (0, "fine\n"), "{value}");
        for name in made {
            assert!(!ground.work.join(name).exists(), "{name} is in the workspace: {value}");
            assert!(value["violations"].to_string().contains(&format!("`{name}`")), "{name}: {value}");
        }
        assert_eq!(ground.sandboxes().len(), 1, "what was taken away is kept");
    });
}

#[test]
fn a_repository_made_inside_cannot_bring_hooks() {
    as_both(|ground| {
        let (code, value) =
            ground.json(&RW, &["bash", "-c", "git init -q . && echo '#!/bin/sh' >.git/hooks/pre-commit && chmod +x .git/hooks/pre-commit"]);
        assert_eq!(code, 0, "{value}");
        assert!(!ground.work.join(".git/hooks/pre-commit").exists(), "{value}");
        assert!(value["violations"].to_string().contains(".git"), "{value}");
    });
}

#[test]
fn no_placeholder_appears_in_the_workspace() {
    as_both(|ground| {
        repository(ground);
        ground.file("a", "a");
        // A marker tells the host when to look, while the program still runs.
        let child = ground
            .running(&RW, &["bash", "-c", "ls -A; echo >started; while [ ! -e done ]; do sleep 0.02; done"])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("started");
        super::ground::eventually("the program runs", || ground.work.join("started").exists());
        let during = ground.host("ls -A . .git");
        ground.file("done", "");
        let outcome = super::ground::ended(child);
        assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(0), ".git\na\n"), "{outcome:?}");
        ground.host("rm started done");
        assert_eq!(during.replace("started\n", ""), ground.host("ls -A . .git"));
    });
}

#[test]
fn an_overlay_marks_protected_changes() {
    as_both(|ground| {
        repository(ground);
        let (code, value) = ground.json(&[], &["bash", "-c", "echo x >.envrc; echo y >plain; git config x.y z"]);
        assert_eq!(code, 0, "{value}");
        let marked: Vec<&str> = value["changes"]
            .as_array()
            .expect("changes")
            .iter()
            .filter(|c| c["protected"] == true)
            .filter_map(|c| c["path"].as_str())
            .collect();
        assert_eq!(marked, [".envrc", ".git/config"], "{value}");
    });
}

#[test]
fn a_linked_worktree_cannot_change_what_its_repository_runs() {
    as_both(|ground| {
        repository(ground);
        let linked = worktree(ground);
        let files = "ls .git/hooks; cat .git/config";
        let before = ground.host(files);
        let script = "echo x >new && git add new && git commit -q -m two; git log --format=%s; common=$(git rev-parse --git-common-dir); \
                      echo evil >$common/hooks/post-checkout; echo evil >>$common/config; mv $common/hooks $common/other; echo 'gitdir: /tmp/x' >.git; \
                      cat $common/../secret";
        ground.file("secret", "PLANTED");
        let mut command = ground.running(&RW, &["bash", "-c", script]);
        let outcome = super::ground::finish(command.current_dir(&linked));
        assert_eq!(outcome.stdout, "two\none\n", "{outcome:?}");
        assert_eq!(ground.host(files), before);
        assert_eq!(ground.host("cd ../trees/linked; git log --format=%s; git status --porcelain"), "two\none\n");
    });
}

#[test]
fn a_git_setting_in_a_linked_worktree_goes_to_a_private_copy() {
    as_both(|ground| {
        repository(ground);
        let linked = worktree(ground);
        let before = ground.read(".git/config");
        let mut command = ground.running(&RW, &["bash", "-c", "git config x.y z && git config x.y"]);
        let outcome = super::ground::finish(command.current_dir(&linked));
        assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(0), "z\n"), "{outcome:?}");
        assert_eq!(ground.read(".git/config"), before);
    });
}

#[test]
fn repositories_below_the_workspace_are_guarded_too() {
    as_both(|ground| {
        ground.host("git init -q sub");
        let before = ground.snapshot();
        let script = "{ echo evil >sub/.git/hooks/pre-commit; mv sub other; mv sub/.git sub/x; rm -rf sub/.git/hooks; echo evil >>sub/.git/config; } 2>/dev/null; true";
        ground.good(&RW, script);
        assert_eq!(ground.snapshot(), before);
    });
}
