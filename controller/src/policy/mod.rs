//! The policy: reads a model sheet, a lane's state or a receipt and decides. Launches nothing, probes nothing, and
//! touches the file system only to check prepared paths (dispatch document; policy-and-contract sections 1 to 9).

pub mod decision; // what may happen next
pub mod history; // could the record have happened
pub mod normalize;
pub mod receipt; // rules of a run receipt
pub mod recovery; // may a descriptor run again
pub mod resolve; // what a role means for a parent
pub mod roles; // the 15 rows
pub mod sheet; // the grammar
pub mod state; // what happened on a lane
pub mod suggest; // what was probably meant
pub mod validate; // is a sheet fit to be saved
pub mod words; // closed vocabularies // from a receipt to an event
