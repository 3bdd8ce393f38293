//! Tests on three brokers.
