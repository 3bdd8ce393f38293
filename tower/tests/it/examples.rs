//! The examples find what they say.

#[allow(dead_code)]
#[path = "../../examples/axum.rs"]
mod axum;
#[allow(dead_code)]
#[path = "../../examples/proxy.rs"]
mod proxy;

use std::future::Future;

fn holds<E: std::fmt::Debug>(run: impl Future<Output = Result<bool, E>>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
    assert!(runtime.block_on(run).unwrap());
}

#[test]
fn a_server_holds_its_limits() {
    holds(axum::run());
}

#[test]
fn a_proxy_pools_connections_and_holds_its_limit() {
    holds(proxy::run());
}
