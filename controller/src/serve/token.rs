//! The token file: made once, readable by its owner only.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use agent::transport::Token;
use uuid::Uuid;

use super::ServeError;

/// Reads the token, after making one if there is no file.
pub(super) fn read_or_make(path: &Path) -> Result<Token, ServeError> {
    let failed = |source| ServeError::MakeToken { path: path.to_owned(), source };
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(mut file) => {
            // 244 random bits of the system's generator.
            let token = format!("{}{}\n", Uuid::new_v4().simple(), Uuid::new_v4().simple());
            file.write_all(token.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)?;
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) => return Err(failed(error)),
    }
    Ok(Token::read(path)?)
}
