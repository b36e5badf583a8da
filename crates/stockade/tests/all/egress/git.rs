//! `git` over HTTPS with a placeholder for its token: clone and push, against git's own server program.

use super::as_both;
use super::world::{VALUE, words};

#[test]
fn git_clones_and_pushes_with_a_placeholder() {
    as_both(|world| {
        world.ground.host(&format!(
            "mkdir -p {0}/repositories; cd {0}; git init -q --bare repositories/project.git
             git -C repositories/project.git config http.receivepack true
             git init -q seed; cd seed; git checkout -q -b main; echo one > file; git add file
             git -c user.name=a -c user.email=a@b commit -qm one; git push -q ../repositories/project.git main
             git -C ../repositories/project.git symbolic-ref HEAD refs/heads/main",
            world.outside.display()
        ));
        let url = format!("https://git:$TOKEN@api.test:{}/git/project.git", world.secure);
        let script = format!(
            "cd /tmp && git clone -q {url} copy && cd copy && cat file && echo two >> file &&
             git -c user.name=a -c user.email=a@b commit -qam two && git push -q origin HEAD:main && grep -c \"$TOKEN\" .git/config"
        );
        let mut flags = world.secure_flags();
        flags.extend(["--secret".into(), format!("TOKEN@api.test:{}", world.secure)]);
        let outcome = world.inside(&words(&flags), &script);
        assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(0), "one\n1\n"), "{outcome:?}");
        let log = world.ground.host(&format!("git -C {}/repositories/project.git log --format=%s main", world.outside.display()));
        assert_eq!(log, "two\none\n", "it was pushed");
        assert!(!outcome.stderr.contains(VALUE));
        // The control: the server lets nobody in without the value.
        let wrong = world.without(&format!(
            "cd /tmp && GIT_TERMINAL_PROMPT=0 git -c http.sslCAInfo={}/ca.pem ls-remote https://git:wrong@api.test:{}/git/project.git",
            world.outside.display(),
            world.secure
        ));
        assert_ne!(wrong.code, Some(0), "{wrong:?}");
    });
}
