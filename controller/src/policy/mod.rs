//! The policy: reads a model sheet, a lane's state or a receipt and decides. Launches nothing, probes nothing, and
//! touches the file system only to check prepared paths (dispatch document; policy-and-contract sections 1 to 9).

pub mod roles; // the 15 rows
pub mod sheet; // the grammar
pub mod words; // closed vocabularies
