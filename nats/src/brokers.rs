//! Three local servers, for tests.
