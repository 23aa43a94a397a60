//! Frames in bytes: one JSON value a line.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Longest frame that either side reads, its newline included.
pub const MAX_FRAME: usize = 1 << 20;

/// Longest piece of stdin or of a file in one frame, before base64.
pub const MAX_PIECE: usize = 256 << 10;

/// The peer does not speak the protocol.
#[derive(Debug)]
pub enum FrameError {
    /// More than [`MAX_FRAME`] bytes without a newline.
    TooLong,
    /// The line is no frame.
    Malformed(serde_json::Error),
}

impl std::fmt::Display for FrameError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TooLong => write!(f, "frame of more than {MAX_FRAME} bytes"),
            Self::Malformed(why) => write!(f, "malformed frame: {why}"),
        }
    }
}

impl std::error::Error for FrameError {}

/// One value as a frame.
///
/// # Errors
/// When the value cannot be JSON; no type of the protocol is such.
pub fn encode(value: &impl Serialize) -> serde_json::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    Ok(line)
}

/// Cuts a byte stream into frames. Holds at most [`MAX_FRAME`] bytes beside what one read brought.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: Vec<u8>,
    scanned: usize,
}

impl Decoder {
    /// Takes the next bytes of the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole frame, if there is one.
    ///
    /// # Errors
    /// See [`FrameError`]; the connection is of no more use then.
    pub fn next_frame<T: DeserializeOwned>(&mut self) -> Result<Option<T>, FrameError> {
        let Some(end) = self.buffer[self.scanned..].iter().position(|&byte| byte == b'\n') else {
            self.scanned = self.buffer.len();
            return if self.scanned >= MAX_FRAME { Err(FrameError::TooLong) } else { Ok(None) };
        };
        let end = self.scanned + end;
        if end >= MAX_FRAME {
            return Err(FrameError::TooLong);
        }
        let frame = serde_json::from_slice(&self.buffer[..end]).map_err(FrameError::Malformed);
        self.buffer.drain(..=end);
        self.scanned = 0;
        frame.map(Some)
    }
}

/// Bytes as base64 text.
pub mod base64_bytes {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use serde::{Deserialize, Deserializer, Serializer};

    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(bytes))
    }

    /// # Errors
    /// When the text is not base64.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(deserializer)?;
        STANDARD.decode(text).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_out_the_same_however_the_bytes_are_cut() {
        let stream = b"{\"a\":1}\n{\"a\":2}\n\"x\"\n".to_vec();
        for cut in 1..stream.len() {
            let mut decoder = Decoder::default();
            let mut seen = Vec::new();
            for piece in stream.chunks(cut) {
                decoder.push(piece);
                while let Some(value) = decoder.next_frame::<serde_json::Value>().unwrap() {
                    seen.push(value.to_string());
                }
            }
            assert_eq!(seen, ["{\"a\":1}", "{\"a\":2}", "\"x\""]);
        }
    }

    #[test]
    fn a_line_without_end_is_refused() {
        let mut decoder = Decoder::default();
        decoder.push(&vec![b' '; MAX_FRAME]);
        assert!(matches!(decoder.next_frame::<serde_json::Value>(), Err(FrameError::TooLong)));
    }

    #[test]
    fn a_full_piece_fits_in_a_frame() {
        use crate::protocol::{Call, Request};
        let call = Call::PutMore { upload: u64::MAX, bytes: vec![0xff; MAX_PIECE], last: true };
        assert!(encode(&Request { id: u64::MAX, descriptors: 0, call }).unwrap().len() < MAX_FRAME);
    }
}
