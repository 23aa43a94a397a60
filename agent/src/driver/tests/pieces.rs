//! The same bytes give the same events and judgement, however they are cut.

use proptest::prelude::*;

use super::*;

/// Recorded output of both providers, one after the other.
fn recordings() -> Vec<(Provider, &'static str)> {
    super::recorded::ALL
        .iter()
        .map(|&(name, text)| (if name.starts_with("claude") { Provider::Claude } else { Provider::Codex }, text))
        .collect()
}

#[test]
fn byte_by_byte_is_like_all_at_once() {
    for (provider, text) in recordings() {
        let cuts: Vec<usize> = (0..text.len()).collect();
        fuzz_transcript(provider, text.as_bytes(), &cuts);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_cutting_of_recorded_output_gives_the_same(which in 0usize..64, cuts in prop::collection::vec(any::<usize>(), 0..40)) {
        let recordings = recordings();
        let (provider, text) = recordings[which % recordings.len()];
        fuzz_transcript(provider, text.as_bytes(), &cuts);
    }

    #[test]
    fn any_cutting_of_damaged_output_gives_the_same(
        which in 0usize..64,
        damage in prop::collection::vec((any::<usize>(), any::<u8>()), 1..8),
        cuts in prop::collection::vec(any::<usize>(), 0..40),
    ) {
        let recordings = recordings();
        let (provider, text) = recordings[which % recordings.len()];
        let mut bytes = text.as_bytes().to_vec();
        for (at, byte) in damage {
            let length = bytes.len();
            bytes[at % length] = byte;
        }
        fuzz_transcript(provider, &bytes, &cuts);
    }
}

#[test]
fn lines_over_the_cap_give_the_same_however_they_are_cut() {
    for filler in ["é\\n", "{\\\"", "\u{1F600}"] {
        let text = format!(
            "{{\"type\":\"assistant\",\"parent_tool_use_id\":null,\"session_id\":\"s\",\"message\":{{\"role\":\"assistant\",\
             \"model\":\"claude-opus-9\",\"content\":[{{\"type\":\"text\",\"text\":\"{0}\"}}]}}}}\n\
             {{\"result\":\"{0}\",\"type\":\"result\",\"subtype\":\"success\",\"is_error\":false,\"session_id\":\"s\"}}",
            filler.repeat(400_000)
        );
        let cuts: Vec<usize> = (0..text.len()).step_by(65_521).chain([1, 2, 3, text.len() - 1]).collect();
        fuzz_transcript(Provider::Claude, text.as_bytes(), &cuts);
        let lane = lane(Provider::Claude, Mode::ReadOnly);
        let (_, judgement) = read_in_pieces(of(Provider::Claude).unwrap(), &lane, text.as_bytes(), &cuts);
        assert_eq!(outcome(&judgement), "complete");
    }
}
