use super::*;
use crate::cache::Stored;
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
        server.cache.expired.send(Some(b"key"[..].into())).unwrap();
    }
    hear(&mut session, b"key").unwrap();
    let left = session.events.as_ref().unwrap().len();
    assert!((3900..5000).contains(&left), "{left} events are left");
}

/// Beyond that it has lost events. A subscriber that hears of each key in time loses none.
#[tokio::test]
async fn keys_that_wait_for_a_slow_subscriber_have_at_most_the_bytes_of_output() {
    let server = Server::new(Options::parse_from(["cached", "--output=1mb"])).unwrap();
    let [mut slow, mut fast] = [(); 2].map(|()| Some(server.cache.expired.subscribe()));
    let keys = (0..100).map(|byte| vec![byte; 100_000]).chain([b"last".to_vec()]);
    for key in keys {
        let soon = Some(server.cache.now() + 1);
        server.cache.insert(&key, Stored::new(b"", soon)).unwrap();
        assert_eq!(*next(&mut fast).await.unwrap(), *key);
    }
    assert!(next(&mut slow).await.is_err());
    let mut waited = 0;
    while waited % 100_000 == 0 {
        waited += next(&mut slow).await.unwrap().len();
    }
    assert!(waited <= 1 << 20, "{waited} bytes waited");
}
