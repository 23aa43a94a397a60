//! What the end-to-end tests stand on: a fake model API, and a world of engines, directories and real programs.

pub mod fake_model; // the model behind real provider CLIs
