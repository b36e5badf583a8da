//! git with its own credential helper: it clones and pushes, and asks nobody at other hosts.

use serde_json::json;

use super::as_both;
use super::stage::bound;

#[test]
fn git_asks_the_helper_and_never_has_the_token() {
    as_both(|stage| {
        let world = &stage.world;
        world.host(&format!(
            "mkdir -p {0}/repositories; cd {0}; git init -q --bare repositories/project.git
             git -C repositories/project.git config http.receivepack true
             git init -q seed; cd seed; git checkout -q -b main; echo one > file; git add file
             git -c user.name=a -c user.email=a@b commit -qm one; git push -q ../repositories/project.git main
             git -C ../repositories/project.git symbolic-ref HEAD refs/heads/main",
            world.outside.display()
        ));
        stage.settings(&json!({ "FORGE": {
            "source": "env", "variable": "TOKEN", "delivery": "git", "user": "git", "authorities": stage.outside("ca.pem"),
        } }));
        let (secure, other) = (format!("127.0.0.1:{}", world.secure), format!("127.0.0.1:{}", world.plain));
        let script = format!(
            "set -e; cd /tmp; export GIT_TERMINAL_PROMPT=0
             git clone -q https://{secure}/git/project.git copy; cd copy; cat file; echo two >> file
             git -c user.name=a -c user.email=a@b commit -qam two; git push -q origin HEAD:main
             git config --list --show-origin | grep -c 'stockade-credential git FORGE'
             printf 'protocol=https\\nhost={secure}\\n\\n' | git credential fill | sed -E 's/(password=ghp_).{{36}}$/\\1SOMETHING/'
             for elsewhere in http://{other} https://other.test:{port} ; do
               git ls-remote $elsewhere/git/project.git 2>/dev/null && echo let in
               printf \"url=$elsewhere\\n\\n\" | git credential fill 2>/dev/null && echo answered
             done; cd ..; rm -rf copy/.git/objects",
            port = world.secure
        );
        let flags = bound("FORGE", &secure, &[&other, &format!("other.test:{}", world.secure)]);
        let said = stage.inside(&flags, &script);
        let expected = format!("one\n2\nprotocol=https\nhost={secure}\nusername=git\npassword=ghp_SOMETHING\n");
        assert_eq!(said, expected);
        let log = world.host(&format!("git -C {}/repositories/project.git log --format=%s main", world.outside.display()));
        assert_eq!(log, "two\none\n", "it was pushed");
        let seen = world.seen();
        let elsewhere: Vec<_> = seen.iter().filter(|one| one["headers"]["host"] != secure.as_str()).collect();
        assert!(!elsewhere.is_empty(), "it was asked: {seen:?}");
        assert!(elsewhere.iter().all(|one| one["headers"].get("authorization").is_none()), "{elsewhere:?}");
        let receipt = stage.receipt();
        assert_eq!(receipt["credentials"], json!([{"adapter": "secret", "id": "FORGE", "scope": secure, "delivery": "proxy-only"}]));
    });
}
