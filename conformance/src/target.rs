//! What the suite is run against, by name.

use stockade_sandbox::connection::Passing;

/// One wall, as one kind of user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// The jail, started by root.
    JailRoot,
    /// The jail, started by an ordinary user.
    JailUser,
    /// As `JailRoot`, with nothing but the byte stream between host and guest, as containers and machines will have it.
    StreamRoot,
    /// As `JailUser`, over the byte stream.
    StreamUser,
    /// As `JailRoot`, cloned from a template.
    TemplateRoot,
    /// As `JailUser`, cloned from a template.
    TemplateUser,
    /// No wall, as an ordinary user: the control in which escapes must succeed.
    Local,
    /// Somebody else's wall in a profile that is typical for it: tests the tests.
    Bubblewrap,
}

/// Who starts the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    /// Root.
    Root,
    /// Nobody in particular.
    Ordinary,
}

impl Target {
    /// All of them, in the order of the page.
    pub const ALL: [Self; 8] = [
        Self::JailRoot,
        Self::JailUser,
        Self::StreamRoot,
        Self::StreamUser,
        Self::TemplateRoot,
        Self::TemplateUser,
        Self::Local,
        Self::Bubblewrap,
    ];

    /// Its name on the command line and on the page.
    pub fn name(self) -> &'static str {
        match self {
            Self::JailRoot => "jail-root",
            Self::JailUser => "jail-user",
            Self::StreamRoot => "jail-root-stream",
            Self::StreamUser => "jail-user-stream",
            Self::TemplateRoot => "jail-root-template",
            Self::TemplateUser => "jail-user-template",
            Self::Local => "local",
            Self::Bubblewrap => "bubblewrap",
        }
    }

    /// The target of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|target| target.name() == name)
    }

    /// The names under which a case may say what it expects here, the narrowest first.
    pub fn expectations(self) -> &'static [&'static str] {
        match self {
            Self::JailRoot => &["jail-root", "jail"],
            Self::JailUser => &["jail-user", "jail"],
            Self::StreamRoot => &["jail-stream", "jail-root", "jail"],
            Self::StreamUser => &["jail-stream", "jail-user", "jail"],
            Self::TemplateRoot => &["jail-template", "jail-root", "jail"],
            Self::TemplateUser => &["jail-template", "jail-user", "jail"],
            Self::Local => &["local"],
            Self::Bubblewrap => &["bubblewrap"],
        }
    }

    /// Who starts it.
    pub fn who(self) -> Who {
        match self {
            Self::JailRoot | Self::StreamRoot | Self::TemplateRoot => Who::Root,
            Self::JailUser | Self::StreamUser | Self::TemplateUser | Self::Local | Self::Bubblewrap => Who::Ordinary,
        }
    }

    /// Whether descriptors are passed to the guest.
    pub fn passing(self) -> Passing {
        match self {
            Self::StreamRoot | Self::StreamUser => Passing::Impossible,
            Self::JailRoot | Self::JailUser | Self::TemplateRoot | Self::TemplateUser | Self::Local | Self::Bubblewrap => Passing::Possible,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Target;

    #[test]
    fn every_target_is_found_by_its_name() {
        for target in Target::ALL {
            assert_eq!(Target::named(target.name()), Some(target));
        }
        assert_eq!(Target::named("docker"), None);
    }
}
