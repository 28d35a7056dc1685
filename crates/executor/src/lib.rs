//! Vectored execution of physical plans.
