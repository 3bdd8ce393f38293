//! Loom models of the real code. See `tests/`.
