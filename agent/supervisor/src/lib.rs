//! The protocol between an agent and the first process of its attempt container.
//!
//! One stream socket, newline-delimited JSON both ways. The supervisor dials, and dials again for ever: an agent may
//! be killed and restarted at any moment. Whatever the supervisor knows it says again in each [`protocol::Hello`].
//! A step is started at most once, however often it is asked for.

pub mod frame; // frames in bytes
pub mod protocol; // what the frames say
