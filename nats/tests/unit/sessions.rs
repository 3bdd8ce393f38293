//! Tests of `src/sessions`. The simulation's workers are front-ends, whose clients move and leave.

use super::FrontEnd;
use crate::keep::sim::{begin, end, run, session_of, Asked, Checked, Client, Sim};
use crate::keep::sim::{LEASE, TIME, WORKERS};
use crate::keep::{Answer, Entry, Terms};
use bytes::Bytes;
use expiry::SessionId;
use std::collections::HashMap;
use std::sync::{mpsc, Arc};
use std::time::Duration;

/// What became of a session.
#[derive(Default, Debug)]
struct Life {
    /// When an owner last had to give it its whole time.
    renewed: u64,
    ending: bool,
    ends: u64,
    reported: u64,
}

struct World {
    lives: HashMap<u64, Life>,
    report: mpsc::Sender<u64>,
    reported: mpsc::Receiver<u64>,
}

impl Default for World {
    fn default() -> Self {
        let (report, reported) = mpsc::channel();
        Self { lives: HashMap::new(), report, reported }
    }
}

/// The sessions of a front-end's clients, and when each is to be touched.
struct Clients(Vec<(u64, u64)>);

impl Sim<Clients> {
    fn life(&mut self, id: u64) -> &mut Life {
        self.world.lives.entry(id).or_default()
    }

    fn lives(&self, id: u64) -> bool {
        let key = Entry::new(id, Vec::new(), Duration::ZERO).record_key();
        self.records.get(&key).is_some_and(|it| it.1.is_some())
    }

    /// The session's next touch comes within half of its timeout.
    fn serve(&mut self, i: usize, id: u64) {
        let next = self.net.now + self.net.below(TIME / 2 - LEASE / 16);
        self.nodes[i].client.0.push((id, next));
    }
}

impl Client for Clients {
    type Front = FrontEnd;
    const LOSES: bool = true;
    type World = World;

    fn terms(world: &World) -> Terms {
        let report = world.report.clone();
        let report = Arc::new(move |id| report.send(id).expect("the world is there"));
        Terms { timeout: Some(Duration::from_micros(TIME)), report }
    }

    fn new(now: Duration) -> (Self, FrontEnd) {
        (Self(Vec::new()), FrontEnd::new(now, Duration::from_micros(TIME)))
    }

    fn tick(sim: &mut Sim<Self>, i: usize) -> Checked {
        for (id, next) in std::mem::take(&mut sim.nodes[i].client.0) {
            if sim.stopping {
                continue;
            }
            if next > sim.net.now {
                sim.nodes[i].client.0.push((id, next));
            } else if sim.nodes[i].front().live.touch(SessionId(id)).is_ok() {
                match sim.net.below(40) {
                    0 => {
                        sim.life(id).ending = true;
                        sim.nodes[i].asks.push(end(id));
                    }
                    1 => sim.nodes[(i + 1) % WORKERS].asks.push(Asked::Adopt(id)),
                    // Its client is gone.
                    2 => sim.life(id).ending |= sim.gentle,
                    _ => sim.serve(i, id),
                }
            } else if sim.gentle {
                return Err(format!("{}: w{i} does not serve {id}", sim.net.now));
            }
        }
        if sim.net.below(32) == 0 && !sim.stopping {
            let id = sim.net.below(u64::MAX);
            let entry = Entry::new(id, Vec::new(), Duration::from_micros(TIME));
            sim.nodes[i].asks.push(begin(entry));
        }
        Ok(())
    }

    fn gone(sim: &mut Sim<Self>, i: usize, id: u64) -> Checked {
        match sim.life(id).ends {
            0 => Err(format!("{}: w{i} takes {id} for gone", sim.net.now)),
            _ => Ok(()),
        }
    }

    fn sure(sim: &mut Sim<Self>, i: usize, _: Duration, ask: Asked, answer: Answer) -> Checked {
        let id = match ask {
            Asked::Write(write) if !write.ends => write.entry.id,
            Asked::Adopt(id) if answer != Answer::No => id,
            _ => return Ok(()),
        };
        sim.counts[0] += 1;
        let timeout = Duration::from_micros(TIME);
        sim.nodes[i].front().live.track(SessionId(id), timeout, 0).unwrap();
        sim.serve(i, id);
        Ok(())
    }

    fn taken(sim: &mut Sim<Self>, ask: Asked) {
        match ask {
            Asked::Write(write) if write.ends => {}
            Asked::Write(write) => sim.life(write.entry.id).renewed = sim.net.now,
            Asked::Adopt(id) => sim.life(id).renewed = sim.net.now,
        }
    }

    fn loaded(sim: &mut Sim<Self>) {
        let now = sim.net.now;
        sim.world.lives.values_mut().for_each(|life| life.renewed = now);
    }

    fn answered(sim: &mut Sim<Self>, ask: Asked, answer: Answer) -> Checked {
        let (id, lives) = match ask {
            Asked::Write(write) => (write.entry.id, !write.ends),
            Asked::Adopt(id) => (id, answer != Answer::No),
        };
        match (lives, sim.lives(id)) {
            (true, false) if sim.life(id).ends == 0 => {
                Err(format!("{}: {id} is answered, but not there", sim.net.now))
            }
            (false, true) => Err(format!("{}: {id} is called gone, but is there", sim.net.now)),
            _ => Ok(()),
        }
    }

    fn handled(sim: &mut Sim<Self>) -> Checked {
        while let Ok(id) = sim.world.reported.try_recv() {
            let now = sim.net.now;
            let life = sim.life(id);
            life.reported += 1;
            if life.ends == 0 {
                return Err(format!("{now}: {id} is reported, but has not ended"));
            }
        }
        Ok(())
    }

    fn written(sim: &mut Sim<Self>, records: &[(Vec<u8>, Option<Bytes>)]) -> Checked {
        for (key, _) in records.iter().filter(|it| it.1.is_none()) {
            let (now, gentle) = (sim.net.now, sim.gentle && !sim.stopping);
            let id = session_of(key).expect("it is a key");
            let life = sim.life(id);
            // The owner's clock may be fast.
            if !life.ending && (gentle || now < life.renewed + TIME * 9 / 10) {
                return Err(format!("{now}: {id} ends too early: {life:?}"));
            }
        }
        Ok(())
    }

    fn stored(sim: &mut Sim<Self>, key: &[u8], lives: bool, lived: bool) -> Checked {
        let now = sim.net.now;
        let id = session_of(key).expect("it is a key");
        let life = sim.life(id);
        if lives {
            life.renewed = now;
            return Ok(());
        }
        life.ends += 1;
        sim.counts[1] += 1;
        lived.then_some(()).ok_or(format!("{now}: {id} ends again"))
    }
}

fn all_are_reported(sim: &Sim<Clients>) -> Checked {
    match sim.world.lives.iter().find(|(_, life)| life.reported < life.ends) {
        Some((id, life)) => Err(format!("{id} was not reported: {life:?}")),
        None => Ok(()),
    }
}

#[test]
fn each_session_ends_once_after_its_time_and_is_reported() {
    let counts = run(25, false, all_are_reported);
    assert!(counts[0] > 6_000 && counts[1] > 5_000 && counts[2] > 20);
}

#[test]
fn an_owners_failure_ends_no_session() {
    run(6, true, all_are_reported);
}
