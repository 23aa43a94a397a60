#![no_main]

#[path = "../src/entry.rs"]
#[allow(dead_code, reason = "each target uses one entry")]
mod entry;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| entry::state(bytes));
