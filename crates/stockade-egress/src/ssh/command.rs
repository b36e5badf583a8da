//! Commands of git as they are sent to a server: one of three programs, and one repository in git's own quotes. Pure; what is read comes from a sandbox.
//!
//! Git writes a name within `'…'`, and each `'` and `!` in it as `'\''` and `'\!'`. Nothing else of a shell is understood, so nothing else is passed on.

use stockade_core::repository::{BadRepository, Repository};

use super::Access;

/// The longest command.
pub const MAX_COMMAND: usize = 4 << 10;

/// What is asked of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Service {
    /// Commits are fetched.
    UploadPack,
    /// Commits are pushed.
    ReceivePack,
    /// An archive of a tree is fetched.
    UploadArchive,
}

impl Service {
    const ALL: [Self; 3] = [Self::UploadPack, Self::ReceivePack, Self::UploadArchive];

    /// The program.
    fn program(self) -> &'static str {
        match self {
            Self::UploadPack => "git-upload-pack",
            Self::ReceivePack => "git-receive-pack",
            Self::UploadArchive => "git-upload-archive",
        }
    }

    /// What it does to a repository.
    pub fn access(self) -> Access {
        match self {
            Self::UploadPack | Self::UploadArchive => Access::Fetch,
            Self::ReceivePack => Access::Push,
        }
    }

    /// As the method of a request, in rules and records.
    pub fn method(self) -> &'static str {
        match self.access() {
            Access::Fetch => "FETCH",
            Access::Push => "PUSH",
        }
    }
}

/// A command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// What is asked.
    pub service: Service,
    /// Of which repository.
    pub repository: Repository,
    /// The repository as it was named: whether it begins with a slash matters to some servers.
    path: String,
}

/// Why a command is not understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadCommand {
    /// Another program, or a shell's text.
    #[error("only `git-upload-pack`, `git-receive-pack` and `git-upload-archive` with one repository in quotes may be run there")]
    Program,
    /// No repository that could be compared.
    #[error("this names no repository that can be compared with the rules: {0}")]
    Repository(#[from] BadRepository),
}

impl Command {
    /// Takes a command apart.
    pub fn parse(text: &[u8]) -> Result<Self, BadCommand> {
        let text = std::str::from_utf8(text).ok().filter(|text| text.len() <= MAX_COMMAND).ok_or(BadCommand::Program)?;
        let of = |service: Service| {
            let program = service.program();
            let rest = text.strip_prefix(program).or_else(|| text.strip_prefix("git ")?.strip_prefix(program.strip_prefix("git-")?))?;
            Some((service, rest.strip_prefix(' ')?))
        };
        let (service, quoted) = Service::ALL.into_iter().find_map(of).ok_or(BadCommand::Program)?;
        let path = unquote(quoted).ok_or(BadCommand::Program)?;
        let repository = Repository::parse(&path)?;
        Ok(Self { service, repository, path })
    }

    /// As it is sent to the server.
    pub fn text(&self) -> String {
        let quoted = self.path.replace('\'', "'\\''").replace('!', "'\\!'");
        format!("{} '{quoted}'", self.service.program())
    }
}

/// The text within git's quotes; `None` where it is anything else.
fn unquote(text: &str) -> Option<String> {
    let mut rest = text.strip_prefix('\'')?;
    let mut out = String::new();
    loop {
        let (inner, after) = rest.split_once('\'')?;
        out.push_str(inner);
        // Git itself never leaves a `!` within quotes.
        if inner.contains('!') {
            return None;
        }
        if after.is_empty() {
            return Some(out);
        }
        let escaped = after.strip_prefix('\\')?;
        let (letter, after) = escaped.split_at_checked(1).filter(|(letter, _)| matches!(*letter, "'" | "!"))?;
        out.push_str(letter);
        rest = after.strip_prefix('\'')?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_git_sends_is_taken_apart_and_written_again() {
        for (text, service, repository, sent) in [
            ("git-upload-pack 'org/site.git'", Service::UploadPack, "org/site", "git-upload-pack 'org/site.git'"),
            ("git-receive-pack '/srv/site'", Service::ReceivePack, "srv/site", "git-receive-pack '/srv/site'"),
            ("git-upload-archive '~ann/x'", Service::UploadArchive, "~ann/x", "git-upload-archive '~ann/x'"),
            ("git upload-pack 'org/site'", Service::UploadPack, "org/site", "git-upload-pack 'org/site'"),
            (r"git-upload-pack 'a'\''b'\!'c d'", Service::UploadPack, "a'b!c d", r"git-upload-pack 'a'\''b'\!'c d'"),
        ] {
            let command = Command::parse(text.as_bytes()).unwrap();
            assert_eq!((command.service, command.repository.as_str(), command.text().as_str()), (service, repository, sent), "{text}");
            assert_eq!(Command::parse(command.text().as_bytes()), Ok(command));
        }
    }

    #[test]
    fn everything_else_is_refused() {
        let long = format!("git-upload-pack '{}'", "a".repeat(MAX_COMMAND));
        for text in [
            "",
            "sh",
            "git-upload-pack",
            "git-upload-pack org/site",
            "git-upload-pack  'org/site'",
            "git-upload-pack 'org/site' ",
            "git-upload-pack 'org/site'; id",
            "git-upload-pack 'org/site' 'other'",
            "git-upload-pack --strict 'org/site'",
            "git-upload-pack 'org/site'\\''",
            "git-upload-pack 'org/site'\\'",
            "git-upload-pack 'org'\\x'site'",
            "git-upload-pack 'org'$(id)'site'",
            "git-upload-pack 'org!site'",
            "git-upload-pack \"org/site\"",
            "git-upload-pack 'org/site'\n",
            "git-shell 'org/site'",
            "git-upload-packs 'org/site'",
            "git  upload-pack 'org/site'",
            "git -c x=y upload-pack 'org/site'",
            " git-upload-pack 'org/site'",
            &long,
        ] {
            assert_eq!(Command::parse(text.as_bytes()), Err(BadCommand::Program), "{text}");
        }
        for text in
            ["git-upload-pack ''", "git-upload-pack '../x'", "git-upload-pack '-x'", "git-upload-pack 'a\nb'", "git-upload-pack 'a//b'"]
        {
            assert!(matches!(Command::parse(text.as_bytes()), Err(BadCommand::Repository(_))), "{text}");
        }
        assert_eq!(Command::parse(b"git-upload-pack '\xff'"), Err(BadCommand::Program));
    }
}
