//! Tests of `src/partitions/held.rs`.

use crate::message::{decoded, encoded};

#[test]
fn every_key_is_one_token_and_comes_back() {
    for byte in 0..=u8::MAX {
        let key = [b'a', byte, b'-'];
        let token = encoded(&key);
        assert!(!token.contains([' ', '.', '*', '>']) && token.is_ascii());
        assert_eq!(decoded(&token).as_deref(), Some(&key[..]));
    }
    assert_eq!((decoded("=4"), decoded("=G0")), (None, None));
}

/// The late owner's own check has passed already when the other one claims.
#[cfg(feature = "brokers")]
#[tokio::test]
async fn the_brokers_refuse_a_write_that_is_late_on_its_way() {
    use crate::message::EXPECTED;
    use crate::{Change, Loss, NatsError};
    let brokers = crate::brokers::Brokers::start(1).unwrap_or_else(|error| panic!("{error}"));
    let options = crate::Options::new("it", "a").servers(brokers.servers());
    let nats = crate::Nats::connect(options).await.unwrap();
    let set = nats.partitions("set", 1).replicas(1);
    let mut partitions = set.clone().join().await.unwrap();
    let Some(Change::Gained(held)) = partitions.next().await else {
        panic!("the only worker has the only partition");
    };
    let one = || vec![("a", Some("early".into()))];
    let two = || vec![("a", Some("late".into())), ("b", Some("late".into()))];
    held.write(one()).await.unwrap();
    drop(partitions);
    let mut headers = async_nats::HeaderMap::new();
    headers.insert(EXPECTED, held.epoch.to_string());
    let claim = nats.store(set.record(0), headers, Default::default());
    let epoch = claim.await.unwrap().sequence;
    let (partition, late_epoch) = (0, held.epoch);
    let fenced = NatsError::Fenced { partition, epoch: late_epoch, why: Loss::Claimed };
    for records in [one(), two()] {
        let answer = held.send(held.messages(records).unwrap()).await;
        assert_eq!(answer, Err(fenced.clone()));
    }
    assert_eq!(held.load().await, Err(fenced));
    let successor = super::Held { epoch, ..held };
    let found = successor.load().await.unwrap();
    assert_eq!(found, [(b"a".to_vec(), "early".into())].into());
}
