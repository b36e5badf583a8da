//! Beginnings that are the same for everybody's tokens of a kind, as data. They say who issued a token and nothing more.

/// Longer ones before those that they begin with.
const PREFIXES: &[&str] = &[
    "github_pat_",          // GitHub, fine-grained
    "ghp_",                 // GitHub, personal
    "gho_",                 // GitHub, OAuth
    "ghu_",                 // GitHub, user to server
    "ghs_",                 // GitHub, server to server
    "ghr_",                 // GitHub, refresh
    "glpat-",               // GitLab, personal
    "gldt-",                // GitLab, deploy
    "glcbt-",               // GitLab, job
    "sk-ant-api03-",        // Anthropic
    "sk-ant-oat01-",        // Anthropic, OAuth
    "sk-ant-",              // Anthropic
    "sk-or-v1-",            // OpenRouter
    "sk-proj-",             // OpenAI, project
    "sk-svcacct-",          // OpenAI, service account
    "sk_live_",             // Stripe
    "sk_test_",             // Stripe
    "rk_live_",             // Stripe, restricted
    "rk_test_",             // Stripe, restricted
    "sk-",                  // OpenAI and those that copied it
    "AKIA",                 // AWS, key id
    "ASIA",                 // AWS, session key id
    "xoxb-",                // Slack, bot
    "xoxp-",                // Slack, user
    "xoxa-",                // Slack, app
    "xapp-",                // Slack, app level
    "npm_",                 // npm
    "pypi-AgEIcHlwaS5vcmc", // PyPI: `pypi.org` in a macaroon
    "pypi-",                // PyPI, others
    "hf_",                  // Hugging Face
    "AIza",                 // Google, API key
    "ya29.",                // Google, OAuth
    "SG.",                  // SendGrid
    "dop_v1_",              // DigitalOcean
    "shpat_",               // Shopify
    "rubygems_",            // RubyGems
    "lin_api_",             // Linear
    "ntn_",                 // Notion
    "r8_",                  // Replicate
    "gsk_",                 // Groq
    "xai-",                 // xAI
    "pplx-",                // Perplexity
    "figd_",                // Figma
    "dckr_pat_",            // Docker
    "hvs.",                 // Vault
    "e2b_",                 // E2B
    "eyJ",                  // a JSON object in base64, as tokens with three parts begin
];

/// As long as this, text with a known beginning is a token and not somebody's name for one.
const TOKEN: usize = 16;

/// The beginning of a value that is no secret; empty for most. Never so much that too little is left.
pub(super) fn public_prefix(value: &[u8]) -> &[u8] {
    let known = PREFIXES.iter().find(|prefix| value.starts_with(prefix.as_bytes()) && value.len() >= prefix.len() + super::RUN);
    known.and_then(|prefix| value.get(..prefix.len())).unwrap_or_default()
}

/// Whether a text begins like a token and is as long as one: a value that came to the wrong place.
pub fn looks_like_a_token(text: &str) -> bool {
    text.len() >= TOKEN && PREFIXES.iter().any(|prefix| text.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_prefix_hides_another() {
        for (index, prefix) in PREFIXES.iter().enumerate() {
            let hidden = PREFIXES.iter().skip(index + 1).find(|later| later.starts_with(prefix));
            assert_eq!(hidden, None, "behind {prefix}");
        }
    }

    #[test]
    fn tokens_are_told_from_names() {
        assert!(looks_like_a_token("ghp_0123456789abcdef") && looks_like_a_token("AKIAIOSFODNN7EXAMPLE"));
        assert!(!looks_like_a_token("GITHUB_TOKEN_OF_MINE") && !looks_like_a_token("npm_token"));
    }
}
