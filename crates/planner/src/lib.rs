//! From the algebra of SPARQL to a physical plan, which is plain data.

pub mod expression;
pub mod physical;
