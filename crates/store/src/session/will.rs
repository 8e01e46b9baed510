//! The will of a client.
//!
//! ```text
//! version 1 | delay | message
//! version 2 | delay | flags | listener | user? | certificate? | address? | claims? | message
//!                     bits 0-3: user, certificate, address, claims
//! claims    | count | role … | count | name | value …
//! ```
//!
//! Version 1 is what was written before the author was kept; such a will is read, and has none.

use std::net::SocketAddr;

use super::meaningless;
use crate::codec::{Reader, RecordError, VERSION, put_number, put_string};
use crate::record::MessageBytes;

/// The will of a session, published when its time comes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Will {
    /// Seconds after the connection's end.
    pub delay_s: u32,
    /// Its client as it connected; `None`: not known.
    pub author: Option<WillAuthor>,
    /// The message; its stamp is that of CONNECT, and its lifetime begins when it is published.
    pub message: MessageBytes,
}

/// What access rules may ask about the client of a will, beside its id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WillAuthor {
    /// The user it was admitted as.
    pub user: Option<String>,
    /// The name in its certificate.
    pub certificate: Option<String>,
    /// Its address.
    pub address: Option<SocketAddr>,
    /// The position of its listener in the configuration.
    pub listener: u16,
    /// Roles that its authenticator vouched for.
    pub roles: Vec<String>,
    /// Names and values that it vouched for.
    pub claims: Vec<(String, String)>,
}

impl Will {
    /// The value in bytes.
    pub fn encode(&self) -> Vec<u8> {
        let version = if self.author.is_some() {
            WITH_AUTHOR
        } else {
            VERSION
        };
        let mut out = vec![version];
        put_number(&mut out, self.delay_s.into());
        if let Some(author) = &self.author {
            author.encode_into(&mut out);
        }
        out.extend_from_slice(self.message.as_bytes());
        out
    }

    /// Reads a value.
    pub fn decode(bytes: &[u8]) -> Result<Self, RecordError> {
        let has_author = bytes.first() == Some(&WITH_AUTHOR);
        let version = if has_author { WITH_AUTHOR } else { VERSION };
        let mut reader = Reader::of_version(version, bytes)?;
        let delay_s = reader.small("delay")?;
        let author = has_author.then(|| WillAuthor::read(&mut reader));
        Ok(Self {
            delay_s,
            author: author.transpose()?,
            message: MessageBytes::parse(reader.rest().to_vec())?,
        })
    }
}

impl WillAuthor {
    fn encode_into(&self, out: &mut Vec<u8>) {
        let address = self.address.map(|address| address.to_string());
        out.push(
            (u8::from(self.user.is_some()) * USER)
                | (u8::from(self.certificate.is_some()) * CERTIFICATE)
                | (u8::from(address.is_some()) * ADDRESS)
                | (u8::from(self.has_claims()) * CLAIMS),
        );
        put_number(out, self.listener.into());
        let texts = [&self.user, &self.certificate, &address];
        for text in texts.into_iter().flatten() {
            put_string(out, text.as_bytes());
        }
        if self.has_claims() {
            put_number(out, self.roles.len() as u64);
            for role in &self.roles {
                put_string(out, role.as_bytes());
            }
            put_number(out, self.claims.len() as u64);
            for (name, value) in &self.claims {
                put_string(out, name.as_bytes());
                put_string(out, value.as_bytes());
            }
        }
    }

    const fn has_claims(&self) -> bool {
        !self.roles.is_empty() || !self.claims.is_empty()
    }

    /// Both counts come before what they count, so nothing is reserved for a count alone.
    fn read_claims(&mut self, reader: &mut Reader<'_>) -> Result<(), RecordError> {
        for _ in 0..reader.small::<u32>("roles")? {
            self.roles.push(reader.text("role")?.to_owned());
        }
        for _ in 0..reader.small::<u32>("claims")? {
            let name = reader.text("claim")?.to_owned();
            self.claims.push((name, reader.text("claim")?.to_owned()));
        }
        if self.has_claims() {
            Ok(())
        } else {
            Err(RecordError::Number("claims"))
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, RecordError> {
        let flags = reader.byte("flags")?;
        if flags & !(USER | CERTIFICATE | ADDRESS | CLAIMS) != 0 {
            return Err(meaningless("flags", flags));
        }
        let listener = reader.small("listener")?;
        let mut text = |flag, field| {
            let text = (flags & flag != 0).then(|| reader.text(field));
            text.transpose().map(|text| text.map(str::to_owned))
        };
        let user = text(USER, "user")?;
        let certificate = text(CERTIFICATE, "certificate")?;
        let address = match text(ADDRESS, "address")? {
            None => None,
            Some(text) => {
                let address: Option<SocketAddr> = text.parse().ok();
                // As it would be written again.
                let address = address.filter(|address| address.to_string() == text);
                Some(address.ok_or(RecordError::Number("address"))?)
            }
        };
        let mut author = Self {
            user,
            certificate,
            address,
            listener,
            ..Self::default()
        };
        if flags & CLAIMS != 0 {
            author.read_claims(reader)?;
        }
        Ok(author)
    }
}

const WITH_AUTHOR: u8 = 2;

const USER: u8 = 1;
const CERTIFICATE: u8 = 2;
const ADDRESS: u8 = 4;
const CLAIMS: u8 = 8;
