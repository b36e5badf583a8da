//! Package managers, from a registry that wants a token.

use super::super::world::{VALUE, bound_flags};
use super::{World, as_both, both_ways};

fn registry(world: &World) -> String {
    let url = format!("https://api.test:{}/registry", world.secure);
    let program = world.outside.join("registry.py");
    world.plant(&program, include_str!("registry.py"), 0o644);
    world.host(&format!("python3 {} {}/registry {url}", program.display(), world.outside.display()));
    url
}

#[test]
fn pip_installs_from_a_private_registry() {
    as_both(|world| {
        let url = registry(world).replace("https://", "https://git:$TOKEN@");
        let script = format!(
            "python3 -m pip install --quiet --no-cache-dir --disable-pip-version-check --no-input --index-url {url}/simple \
             --target /tmp/site from-outside >&2 && PYTHONPATH=/tmp/site python3 -c 'import from_outside; print(from_outside.said)'"
        );
        both_ways(world, &bound_flags(&[world.secure]), &script, "installed by pip\n");
        let seen = world.seen();
        assert!(seen.iter().any(|one| one["path"].as_str().is_some_and(|path| path.contains(".whl"))), "{seen:?}");
    });
}

#[test]
fn npm_installs_from_a_private_registry() {
    as_both(|world| {
        let url = registry(world);
        let place = url.trim_start_matches("https:");
        let script = format!(
            "mkdir /tmp/project && cd /tmp/project && echo '{{}}' > package.json && echo '{place}/:_authToken=${{TOKEN}}' > .npmrc &&
             npm install --silent --no-audit --no-fund --no-update-notifier --registry {url}/npm/ from-outside >&2 &&
             node -p 'require(\"from-outside\")'"
        );
        both_ways(world, &bound_flags(&[world.secure]), &script, "installed by npm\n");
        let seen = world.seen();
        let tarball = seen.iter().find(|one| one["path"].as_str().is_some_and(|path| path.contains(".tgz")));
        assert_eq!(tarball.expect("it was fetched")["headers"]["authorization"], format!("Bearer {VALUE}"), "{seen:?}");
    });
}
