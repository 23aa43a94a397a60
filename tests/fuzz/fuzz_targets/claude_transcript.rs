#![no_main]

//! The first byte says how many cuts follow (two bytes each); the rest is the output of claude.

use agent::descriptor::Provider;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((&count, rest)) = bytes.split_first() else { return };
    let (head, data) = rest.split_at(rest.len().min(2 * usize::from(count)));
    let cuts: Vec<usize> =
        head.chunks(2).map(|pair| pair.iter().fold(0, |cut, &byte| cut << 8 | usize::from(byte))).collect();
    agent::driver::fuzz_transcript(Provider::Claude, data, &cuts);
});
