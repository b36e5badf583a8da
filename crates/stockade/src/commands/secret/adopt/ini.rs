//! The files of `aws`: sections of `key = value`. Nested settings (indented lines) are passed over; nothing is expanded. Pure.

use zeroize::Zeroizing;

/// A section's fields.
pub(super) struct Section {
    /// As it stands between the brackets, its blanks made one.
    pub(super) name: String,
    fields: Vec<(String, Zeroizing<String>)>,
}

impl Section {
    /// A field that is there and not empty.
    pub(super) fn field(&self, key: &str) -> Option<&str> {
        self.fields.iter().rev().find(|(known, _)| known == key).map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }
}

/// Reads a file; the number of a line that is none of it, from 1.
pub(super) fn parse(text: &str) -> Result<Vec<Section>, usize> {
    let mut sections: Vec<Section> = Vec::new();
    for (number, line) in text.lines().enumerate().map(|(index, line)| (index + 1, line.trim_end())) {
        if line.is_empty() || line.starts_with(['#', ';', ' ', '\t']) {
            continue;
        }
        if let Some(rest) = line.strip_prefix('[') {
            let (name, _) = rest.split_once(']').ok_or(number)?;
            sections.push(Section { name: name.split_whitespace().collect::<Vec<_>>().join(" "), fields: Vec::new() });
            continue;
        }
        let (key, value) = line.split_once('=').ok_or(number)?;
        let section = sections.last_mut().ok_or(number)?;
        section.fields.push((key.trim().to_ascii_lowercase(), Zeroizing::new(value.trim().to_owned())));
    }
    Ok(sections)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_and_fields_are_read() {
        let text = "# c\n[default]\naws_access_key_id = AKIA\nAWS_SECRET_ACCESS_KEY=a=b/c+d\n\n[profile  dev] ; x\ns3 =\n  max = 5\nregion=eu-1\nregion=eu-2\n";
        let sections = parse(text).unwrap();
        let fields = |section: &Section| {
            ["aws_access_key_id", "aws_secret_access_key", "region", "max", "s3"].map(|key| section.field(key).map(str::to_owned))
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(sections.iter().map(|section| section.name.as_str()).collect::<Vec<_>>(), ["default", "profile dev"]);
        assert_eq!(fields(&sections[0]), [some("AKIA"), some("a=b/c+d"), None, None, None]);
        assert_eq!(fields(&sections[1]), [None, None, some("eu-2"), None, None]);
        for (bad, line) in [("a = b\n", 1), ("[x\n", 1), ("[x]\nnonsense\n", 2)] {
            assert_eq!(parse(bad).err(), Some(line), "{bad}");
        }
    }
}
