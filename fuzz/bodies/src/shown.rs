//! What a person may be shown: the same promise as `stockade_core::escape`, written down a second time from the Unicode data, so that a
//! hole in one list is not a hole in both.

/// Characters that are not drawn, or that move what is drawn: the ranges of `Default_Ignorable_Code_Point` and `Bidi_Control`, and the two
/// separators that break lines.
const INVISIBLE: [(u32, u32); 19] = [
    (0x00ad, 0x00ad),
    (0x034f, 0x034f),
    (0x061c, 0x061c),
    (0x115f, 0x1160),
    (0x17b4, 0x17b5),
    (0x180b, 0x180f),
    (0x200b, 0x200f),
    (0x2028, 0x2029),
    (0x202a, 0x202e),
    (0x2060, 0x2064),
    (0x2065, 0x206f),
    (0x3164, 0x3164),
    (0xfe00, 0xfe0f),
    (0xfeff, 0xfeff),
    (0xffa0, 0xffa0),
    (0xfff0, 0xfffb),
    (0x1bca0, 0x1bca3),
    (0x1d173, 0x1d17a),
    (0xe0000, 0xe0fff),
];

/// Whether a character could mislead who reads it.
pub fn is_misleading(character: char) -> bool {
    let code = u32::from(character);
    code < 0x20 || (0x7f..0xa0).contains(&code) || INVISIBLE.iter().any(|(first, last)| (*first..=*last).contains(&code))
}

/// Fails where a text could mislead; line breaks may be let through.
#[track_caller]
pub fn assert_honest(text: &str, but: &[char]) {
    let found = text.chars().find(|character| is_misleading(*character) && !but.contains(character));
    assert_eq!(found, None, "a misleading character is shown: {text:?}");
}
