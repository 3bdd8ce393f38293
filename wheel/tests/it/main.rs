//! Tests of the public interface.

mod rotating;
