//! First process of an attempt container.
fn main() {}
