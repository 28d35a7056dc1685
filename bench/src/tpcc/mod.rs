//! The warehouses of TPC-C as a graph: how large, what things are called, and the laws that values are drawn by.
//!
//! A row of a table is a node, its key the node's IRI, a foreign key an edge, any other column a literal. A column without
//! a value has no triple; a row of NEW-ORDER is the edge `waitsIn` from an order to its district.
//!
//! # References
//! TPC Benchmark C, Standard Specification, revision 5.11: clauses 1.2, 1.3 (tables), 2.1.6 (NURand), 4.3 (population).

pub(crate) mod laws;
pub(crate) mod population;
#[cfg(test)]
mod tests;

/// Where warehouses and all that belongs to them are.
pub(crate) const BASE: &str = "http://stoa.example/tpcc/";
/// Where the predicates are.
pub(crate) const VOCABULARY: &str = "http://stoa.example/tpcc/v#";

/// Districts of a warehouse.
pub(crate) const DISTRICTS: u64 = 10;

/// How many there are of everything.
#[derive(clap::Args, Clone, Copy, Debug)]
pub(crate) struct Scale {
    /// Warehouses; each has ten districts
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub(crate) warehouses: u64,
    /// Items, each in stock at each warehouse; the standard has 100000, fewer are for trying out
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(20..=100_000))]
    pub(crate) items: u64,
    /// Customers of each district, and the orders that it begins with; the standard has 3000
    #[arg(long, value_name = "N", default_value_t = 3_000, value_parser = clap::value_parser!(u64).range(10..=3_000))]
    pub(crate) customers: u64,
}

impl Scale {
    /// Orders of a district that are delivered when it begins; the others wait.
    pub(crate) fn delivered(self) -> u64 {
        self.customers * 7 / 10
    }

    /// Different last names of a district.
    pub(crate) fn last_names(self) -> u64 {
        self.customers.min(laws::LAST_NAMES)
    }
}

pub(crate) fn warehouse(warehouse: u64) -> String {
    format!("<{BASE}w/{warehouse}>")
}

pub(crate) fn district(warehouse: u64, district: u64) -> String {
    format!("<{BASE}w/{warehouse}/d/{district}>")
}

pub(crate) fn customer(warehouse: u64, district: u64, customer: u64) -> String {
    format!("<{BASE}w/{warehouse}/d/{district}/c/{customer}>")
}

/// What the IRIs of a district's orders begin with; their numbers follow.
pub(crate) fn orders(warehouse: u64, district: u64) -> String {
    format!("{BASE}w/{warehouse}/d/{district}/o/")
}

pub(crate) fn order(warehouse: u64, district: u64, order: u64) -> String {
    format!("<{}{order}>", orders(warehouse, district))
}

pub(crate) fn line(warehouse: u64, district: u64, order: u64, line: u64) -> String {
    format!("<{}{order}/l/{line}>", orders(warehouse, district))
}

pub(crate) fn item(item: u64) -> String {
    format!("<{BASE}i/{item}>")
}

pub(crate) fn stock(warehouse: u64, item: u64) -> String {
    format!("<{BASE}w/{warehouse}/s/{item}>")
}

/// A payment; `name` is one that no other has.
pub(crate) fn history(name: &str) -> String {
    format!("<{BASE}h/{name}>")
}

/// The predicate of a stock's text about a district.
pub(crate) fn info(district: u64) -> String {
    format!("info{district:02}")
}

/// Money, from cents, as SPARQL writes a decimal.
pub(crate) fn money(cents: u64) -> String {
    format!("{}.{:02}", cents / 100, cents % 100)
}
