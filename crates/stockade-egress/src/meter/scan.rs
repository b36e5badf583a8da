//! Reads JSON byte by byte for the few members that state usage. Constant memory: the names above the current place for the first levels, one
//! short word, the numbers.
//!
//! It does not check that the text is JSON. What is not balanced is not looked at any further; the answer goes its way all the same.

use super::Usage;

/// Levels in which names are remembered; usage is stated no deeper.
const LEVELS: usize = 5;
/// The longest name or value that is remembered; what is longer is nobody's.
const WORD: usize = 96;
/// Digits of a number that is believed.
const DIGITS: usize = 15;

/// What a member's name means to us.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Name {
    #[default]
    Other,
    /// `message` of a stream's first event, `response` of one's last: usage is stated beneath.
    Around,
    Usage,
    Model,
    Input,
    Output,
    Thoughts,
    CacheRead,
    /// As [`Name::CacheRead`], where those tokens count among the input as well.
    CacheReadOfInput,
    CacheWrite,
    Details,
}

impl Name {
    fn of(word: &[u8]) -> Self {
        match word {
            b"message" | b"response" => Self::Around,
            b"usage" | b"usageMetadata" => Self::Usage,
            b"model" | b"modelVersion" => Self::Model,
            b"input_tokens" | b"prompt_tokens" | b"promptTokenCount" => Self::Input,
            b"output_tokens" | b"completion_tokens" | b"candidatesTokenCount" => Self::Output,
            b"thoughtsTokenCount" => Self::Thoughts,
            b"cache_read_input_tokens" => Self::CacheRead,
            b"cached_tokens" | b"cachedContentTokenCount" => Self::CacheReadOfInput,
            b"cache_creation_input_tokens" => Self::CacheWrite,
            b"input_tokens_details" | b"prompt_tokens_details" => Self::Details,
            _ => Self::Other,
        }
    }
}

/// What is open at a level.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Open {
    #[default]
    List,
    /// An object, and the member that is being read.
    Object(Name),
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Place {
    /// Between words.
    #[default]
    Between,
    /// Inside a string.
    Text,
    /// Right after a backslash in one.
    Escape,
    /// Inside a number or a bare word.
    Bare,
    /// Nothing more is looked at.
    Lost,
}

/// The reader.
#[derive(Debug, Default)]
pub(super) struct Scanner {
    place: Place,
    depth: usize,
    open: [Open; LEVELS],
    /// The next string is a member's name.
    at_name: bool,
    word: Vec<u8>,
    word_is_whole: bool,
    found: Found,
}

#[derive(Debug, Default)]
struct Found {
    model: Option<String>,
    input: Option<u64>,
    output: Option<u64>,
    thoughts: Option<u64>,
    cache_read: Option<u64>,
    cache_read_of_input: Option<u64>,
    cache_write: Option<u64>,
}

impl Scanner {
    /// Another JSON text begins; what was found stays.
    pub(super) fn begin_again(&mut self) {
        self.place = Place::Between;
        self.depth = 0;
        self.at_name = false;
        self.word.clear();
    }

    pub(super) fn push(&mut self, byte: u8) {
        match self.place {
            Place::Lost => {}
            Place::Escape => self.place = Place::Text,
            Place::Text => match byte {
                b'\\' => {
                    // No name or value of ours has one.
                    self.word_is_whole = false;
                    self.place = Place::Escape;
                }
                b'"' => self.end_text(),
                byte => self.add(byte),
            },
            Place::Bare => match byte {
                b',' | b'}' | b']' | b' ' | b'\t' | b'\n' | b'\r' => {
                    self.end_bare();
                    self.between(byte);
                }
                byte => self.add(byte),
            },
            Place::Between => self.between(byte),
        }
    }

    /// What was stated so far.
    pub(super) fn usage(&self) -> Option<Usage> {
        let Found { model, input, output, thoughts, cache_read, cache_read_of_input, cache_write } = &self.found;
        if [input, output, thoughts, cache_read, cache_read_of_input, cache_write].iter().all(|number| number.is_none()) {
            return None;
        }
        let of_input = cache_read_of_input.unwrap_or_default();
        Some(Usage {
            model: model.clone(),
            input: input.unwrap_or_default().saturating_sub(of_input),
            output: output.unwrap_or_default().saturating_add(thoughts.unwrap_or_default()),
            cache_read: cache_read.unwrap_or_default().max(of_input),
            cache_write: cache_write.unwrap_or_default(),
        })
    }

    fn between(&mut self, byte: u8) {
        self.place = Place::Between;
        match byte {
            b'{' => self.enter(Open::Object(Name::Other)),
            b'[' => self.enter(Open::List),
            b'}' | b']' => match self.depth.checked_sub(1) {
                Some(depth) => {
                    self.depth = depth;
                    self.at_name = false;
                }
                None => self.place = Place::Lost,
            },
            b',' => self.at_name = matches!(self.here(), Some(Open::Object(_))),
            b'"' => self.begin(Place::Text),
            b':' | b' ' | b'\t' | b'\n' | b'\r' => {}
            byte => {
                self.begin(Place::Bare);
                self.add(byte);
            }
        }
    }

    fn enter(&mut self, open: Open) {
        if let Some(level) = self.open.get_mut(self.depth) {
            *level = open;
        }
        self.depth = self.depth.saturating_add(1);
        self.at_name = matches!(open, Open::Object(_));
    }

    fn here(&self) -> Option<Open> {
        self.depth.checked_sub(1).and_then(|level| self.open.get(level)).copied()
    }

    fn begin(&mut self, place: Place) {
        self.place = place;
        self.word.clear();
        self.word_is_whole = true;
    }

    fn add(&mut self, byte: u8) {
        if self.word.len() < WORD {
            self.word.push(byte);
        } else {
            self.word_is_whole = false;
        }
    }

    fn end_text(&mut self) {
        self.place = Place::Between;
        if self.at_name {
            self.at_name = false;
            let name = if self.word_is_whole { Name::of(&self.word) } else { Name::Other };
            if let Some(level) = self.depth.checked_sub(1).and_then(|level| self.open.get_mut(level)) {
                *level = Open::Object(name);
            }
            return;
        }
        let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._:/@+".contains(byte);
        let names_model = matches!(self.path().names(), [Name::Model] | [Name::Around, Name::Model]);
        if names_model && self.word_is_whole && !self.word.is_empty() && self.word.iter().all(is_plain) {
            self.found.model = String::from_utf8(self.word.clone()).ok();
        }
    }

    fn end_bare(&mut self) {
        self.place = Place::Between;
        let digits = std::str::from_utf8(&self.word).ok().filter(|word| self.word_is_whole && word.len() <= DIGITS);
        // Signs, fractions and exponents are no counts.
        let Some(count) = digits.filter(|word| word.bytes().all(|byte| byte.is_ascii_digit())).and_then(|word| word.parse::<u64>().ok())
        else {
            return;
        };
        let path = self.path();
        let ([Name::Usage, rest @ ..] | [Name::Around, Name::Usage, rest @ ..]) = path.names() else { return };
        let field = match rest {
            [Name::Input] => &mut self.found.input,
            [Name::Output] => &mut self.found.output,
            [Name::Thoughts] => &mut self.found.thoughts,
            [Name::CacheRead] => &mut self.found.cache_read,
            [Name::CacheReadOfInput] | [Name::Details, Name::CacheReadOfInput] => &mut self.found.cache_read_of_input,
            [Name::CacheWrite] => &mut self.found.cache_write,
            _ => return,
        };
        // A stream states totals, again and again.
        *field = Some(field.unwrap_or_default().max(count));
    }

    /// The names that lead here, where all of it is objects; a list around everything counts as nothing.
    fn path(&self) -> Path {
        let mut path = Path::default();
        for (level, open) in self.open.get(..self.depth).unwrap_or_default().iter().enumerate() {
            match open {
                Open::Object(name) => path.push(*name),
                Open::List if level == 0 => {}
                Open::List => return Path::default(),
            }
        }
        path
    }
}

/// Names from the outermost to the innermost.
#[derive(Debug, Default)]
struct Path {
    names: [Name; LEVELS],
    count: usize,
}

impl Path {
    fn push(&mut self, name: Name) {
        if let Some(place) = self.names.get_mut(self.count) {
            *place = name;
            self.count += 1;
        }
    }

    fn names(&self) -> &[Name] {
        self.names.get(..self.count).unwrap_or_default()
    }
}
