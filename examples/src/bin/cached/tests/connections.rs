use super::*;
use clap::Parser;

/// Events that write nothing are heard in portions, between which the worker serves others.
#[test]
fn a_portion_of_events_is_bounded_also_where_none_is_for_the_client() {
    let server = Arc::new(Server::new(Options::parse_from(["cached"])).unwrap());
    let mut session = Session::new(server.clone(), 1);
    let mut requests = Requests::default();
    requests.room().extend_from_slice(b"PSUBSCRIBE none*\r\n");
    assert_eq!(execute(&mut requests, &mut session).0, 1);
    for _ in 0..5000 {
        server.cache.expired.send(b"key"[..].into()).unwrap();
    }
    hear(&mut session, b"key").unwrap();
    let left = session.events.as_ref().unwrap().len();
    assert!((3900..5000).contains(&left), "{left} events are left");
}
