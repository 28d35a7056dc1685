//! Tests of the planner through its public interface.
//!
//! One program holds them all, because linking a program for each file took longer than running it.

mod deep;
mod differential;
mod explain;
mod sampling;
mod support;
