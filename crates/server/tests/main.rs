//! Tests of the binary `stoa`: its command line and its HTTP server.
//!
//! One program holds them all, because linking a program for each file took longer than running it.

mod access;
mod admission;
mod backup;
mod bad_input;
mod command_line;
mod ending;
mod errors;
mod failures;
mod fuzz;
mod graph_store;
mod history;
mod http;
#[path = "support/http_client.rs"]
mod http_client;
mod huge_queries;
mod interrupted;
mod kill;
mod large_documents;
mod load_server;
mod memento;
mod messages;
mod options;
mod protocol;
mod query_memory;
mod rdf4j;
mod rdf4j_transactions;
mod remote;
#[path = "../../../testsuite/src/serializability.rs"]
#[expect(
    unreachable_pub,
    clippy::indexing_slicing,
    reason = "shared with the testsuite"
)]
mod serializability;
mod serializable;
mod service;
mod streaming;
mod support;
mod update;
mod updating;
mod w3c_protocol;
#[path = "../../../testsuite/src/workloads.rs"]
#[expect(unreachable_pub, reason = "shared with the testsuite")]
mod workloads;
