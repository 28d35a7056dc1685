//! JSON-LD 1.1, one thread a file.
//!
//! JSON is read into a [`tape::Tape`], an object of it is expanded ([`expand`]) with the context that
//! holds there ([`context`], [`process`], [`define`]), and what comes out goes straight to quads
//! ([`quads`]). Of an array at the top, one item is held at a time; of an object that is large, one item
//! at a time of the arrays in it ([`document`]).
//!
//! Contexts that a document names by their URL are those that the caller gave; nothing is fetched.
//!
//! # Limits
//! What an object takes in memory is many times its text, so a share of the memory is the most that may
//! be held at once.
//!
//! # References
//! <https://www.w3.org/TR/json-ld11/>, <https://www.w3.org/TR/json-ld11-api/>; docs/design

mod building;
mod context;
mod define;
mod document;
mod expand;
mod item;
mod json;
mod keyword;
mod mistake;
mod number;
mod process;
mod quads;
mod resolve;
mod tape;

pub(crate) use document::{Settings, parse, verify};
pub(crate) use process::Contexts;
pub(crate) use quads::OnDropped;

#[cfg(test)]
mod tests;
