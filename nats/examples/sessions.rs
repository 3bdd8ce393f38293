//! Front-ends are restarted one by one, under 1,000 clients. No client loses its session.
//!
//! ```sh
//! cargo run --release -p expiry-nats --features brokers --example sessions
//! ```

use expiry_nats::brokers::Brokers;
use expiry_nats::{Nats, Options, SessionId, Sessions};
use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

type Error = Box<dyn std::error::Error + Send + Sync>;

const FRONTS: usize = 3;
const CLIENTS: usize = 1_000;

/// The front-ends that are up, as a load balancer knows them, and the ends that they were told.
#[derive(Default)]
struct Site {
    fronts: Mutex<Vec<Option<Sessions>>>,
    ended: Mutex<HashSet<SessionId>>,
}

impl Site {
    /// The front-end of a client, or the next one that is up.
    fn front(&self, client: usize) -> Sessions {
        let fronts = self.fronts.lock().expect("no caller panics");
        let up = (0..FRONTS).find_map(|n| fronts[(client + n) % FRONTS].clone());
        up.expect("one is restarted at a time")
    }

    async fn start(self: Arc<Self>, server: &str, n: usize) -> Result<(), Error> {
        let options = Options::new("example", &format!("front{n}")).servers([server]);
        let nats = Nats::connect(options).await?;
        let set = nats.sessions("clients", 16).replicas(1).timeout(Duration::from_secs(8));
        let (sessions, mut ended) = set.partition_lease(Duration::from_secs(1)).join().await?;
        self.fronts.lock().expect("no caller panics")[n] = Some(sessions);
        tokio::spawn(async move {
            // A real one would mark the user as offline. To do that twice has to be harmless.
            while let Some(id) = ended.next().await {
                self.ended.lock().expect("no caller panics").insert(id);
            }
        });
        Ok(())
    }
}

/// A client that says something each second.
async fn client(site: Arc<Site>, n: usize) -> Result<SessionId, Error> {
    let id = site.front(n).begin().await?;
    for _ in 0..30 {
        let front = site.front(n);
        // A front-end that does not know the session asks its owner.
        if !front.touch(id) && !front.adopt(id).await? {
            return Err(format!("client {n} has lost its session").into());
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    site.front(n).end(id).await?;
    Ok(id)
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let brokers = tokio::task::spawn_blocking(|| Brokers::start(1)).await??;
    let server = brokers.servers().remove(0);
    let site = Arc::new(Site::default());
    site.fronts.lock().expect("no caller panics").resize(FRONTS, None);
    for n in 0..FRONTS {
        site.clone().start(&server, n).await?;
    }
    let clients: Vec<_> = (0..CLIENTS).map(|n| tokio::spawn(client(site.clone(), n))).collect();
    for n in 0..FRONTS {
        tokio::time::sleep(Duration::from_secs(4)).await;
        let old = site.fronts.lock().expect("no caller panics")[n].take();
        if let Some(old) = old {
            old.leave().await; // the others own its partitions now
        }
        site.clone().start(&server, n).await?;
        println!("front-end {n} is up again");
    }
    let mut all = HashSet::new();
    for client in clients {
        all.insert(client.await??);
    }
    while *site.ended.lock().expect("no caller panics") != all {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    println!("{} clients had their sessions all the time", all.len());
    Ok(())
}
