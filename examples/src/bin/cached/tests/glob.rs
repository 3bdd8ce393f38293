use super::matches;

#[test]
fn patterns_match_as_those_of_redis() {
    for (pattern, text, wanted) in [
        ("*", "", true),
        ("*", "any", true),
        ("a*c*e", "abcde", true),
        ("a*c*e", "abcdef", false),
        ("*ab", "aab", true),
        ("h?llo", "hello", true),
        ("h?llo", "hllo", false),
        ("h[ae]llo", "hallo", true),
        ("h[^e]llo", "hello", false),
        ("h[a-c]llo", "hbllo", true),
        ("h[c-a]llo", "hbllo", true),
        ("h[\\]]llo", "h]llo", true),
        ("h\\*llo", "h*llo", true),
        ("h\\*llo", "hxllo", false),
        ("[ab", "b", true),
        ("\\", "\\", true),
        ("", "", true),
        ("", "a", false),
    ] {
        assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), wanted, "{pattern} {text}");
    }
}

#[test]
fn many_stars_take_no_exponential_time() {
    assert!(!matches(("a*".repeat(50) + "b").as_bytes(), "a".repeat(40_000).as_bytes()));
    assert!(!matches(b"*a*a*a*a*a*a*a*a*a*a*b", "a".repeat(40_000).as_bytes()));
}
