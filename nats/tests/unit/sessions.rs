//! Tests of `src/sessions`. The simulation's workers are front-ends, whose clients move and leave.

use super::front::{Event, Front};
use super::owner::Owner;
use super::wire::{key, record, session_of, Ask, Ids, Said};
use super::Terms;
use crate::keep::sim::{random_bytes, run, Checked, Client, Request, Sim, LEASE, TIME, WORKERS};
use crate::keep::Wire;
use bytes::Bytes;
use expiry::{SessionId, SessionTracker};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};

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
    report: UnboundedSender<SessionId>,
    reported: UnboundedReceiver<SessionId>,
}

impl Default for World {
    fn default() -> Self {
        let (report, reported) = mpsc::unbounded_channel();
        Self { lives: HashMap::new(), report, reported }
    }
}

struct FrontEnd {
    front: Front,
    live: Arc<SessionTracker>,
    gone: UnboundedReceiver<SessionId>,
    /// Its clients' sessions, and when each is to be touched.
    clients: Vec<(u64, u64)>,
    /// The touches in a row that were lost.
    lost: u64,
}

fn terms(reported: UnboundedSender<SessionId>) -> Terms {
    Terms { timeout: Duration::from_micros(TIME), reported }
}

fn on(sim: &mut Sim<FrontEnd>, i: usize, event: Event) {
    let (now, mut out) = (sim.clock(i), Vec::new());
    sim.nodes[i].client.front.on(now, event, &mut out);
    for touch in out {
        let lost = sim.net.below(4) == 0 && sim.nodes[i].client.lost < 2;
        sim.nodes[i].client.lost = if lost { sim.nodes[i].client.lost + 1 } else { 0 };
        sim.ask(i, Ask::Touch(touch.touched), LEASE / 2, lost);
    }
}

impl Sim<FrontEnd> {
    fn life(&mut self, id: u64) -> &mut Life {
        self.world.lives.entry(id).or_default()
    }

    /// The session's next touch comes within half of its timeout.
    fn serve(&mut self, i: usize, id: u64) {
        let next = self.net.now + self.net.below(TIME / 2 - LEASE / 16);
        self.nodes[i].client.clients.push((id, next));
    }
}

impl Client for FrontEnd {
    type Keeper = Owner<usize>;
    type World = World;

    fn terms(world: &World) -> Terms {
        terms(world.report.clone())
    }

    fn new(now: Duration) -> Self {
        let (report, gone) = mpsc::unbounded_channel();
        let (front, live) = Front::new(terms(report), now, 1);
        Self { front, live, gone, clients: Vec::new(), lost: 0 }
    }

    fn tick(sim: &mut Sim<Self>, i: usize) -> Checked {
        on(sim, i, Event::Tick);
        while let Ok(id) = sim.nodes[i].client.gone.try_recv() {
            if sim.life(id.0).ends == 0 {
                return Err(format!("{}: w{i} takes {id} for gone", sim.net.now));
            }
        }
        for (id, next) in std::mem::take(&mut sim.nodes[i].client.clients) {
            if sim.stopping {
                continue;
            }
            if next > sim.net.now {
                sim.nodes[i].client.clients.push((id, next));
            } else if sim.nodes[i].client.live.touch(SessionId(id)).is_ok() {
                match sim.net.below(40) {
                    0 => {
                        sim.life(id).ending = true;
                        sim.ask(i, Ask::End(id), LEASE, false);
                    }
                    1 => sim.ask((i + 1) % WORKERS, Ask::Adopt(id), LEASE, false),
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
            sim.ask(i, Ask::Begin(id), LEASE, false);
        }
        Ok(())
    }

    fn unanswered(sim: &mut Sim<Self>, i: usize, serial: usize) {
        let Request { sent_at, ask, .. } = &sim.requests[serial];
        match (*sent_at, ask.clone()) {
            (sent_at, Ask::Touch(_)) => {
                on(sim, i, Event::Answered { partition: 0, sent_at, gone: None });
            }
            (_, again) => sim.ask(i, again, LEASE, false),
        }
    }

    fn said(sim: &mut Sim<Self>, i: usize, serial: usize, said: Said) -> Checked {
        let Request { sent_at, ask, .. } = &sim.requests[serial];
        match (ask.clone(), said, *sent_at) {
            (Ask::Touch(_), Said::Gone(gone), sent_at) => {
                on(sim, i, Event::Answered { partition: 0, sent_at, gone: Some(gone.ids) });
            }
            (Ask::Begin(id) | Ask::Adopt(id), Said::Lives(true), _) => {
                sim.counts[0] += 1;
                let timeout = Duration::from_micros(TIME);
                sim.nodes[i].client.live.track(SessionId(id), timeout, 0).unwrap();
                sim.serve(i, id);
            }
            _ => {}
        }
        Ok(())
    }

    fn taken(sim: &mut Sim<Self>, serial: usize) {
        let ids = match &sim.requests[serial].ask {
            Ask::Touch(touched) => touched.ids.clone(),
            Ask::Adopt(id) | Ask::Begin(id) => vec![*id],
            Ask::End(_) => Vec::new(),
        };
        ids.into_iter().for_each(|id| sim.life(id).renewed = sim.net.now);
    }

    fn loaded(sim: &mut Sim<Self>) {
        let now = sim.net.now;
        sim.world.lives.values_mut().for_each(|life| life.renewed = now);
    }

    fn answered(sim: &mut Sim<Self>, serial: usize, said: &Said) -> Checked {
        let (now, ask) = (sim.net.now, sim.requests[serial].ask.clone());
        let lives =
            |sim: &Sim<Self>, id| sim.records.get(&key(id)).is_some_and(|it| it.1.is_some());
        match (ask, said) {
            (Ask::Begin(id) | Ask::Adopt(id), Said::Lives(true))
                if !lives(sim, id) && sim.life(id).ends == 0 =>
            {
                Err(format!("{now}: {id} is answered, but not there"))
            }
            (Ask::End(id) | Ask::Adopt(id), Said::Lives(false)) if lives(sim, id) => {
                Err(format!("{now}: {id} is called gone, but is there"))
            }
            _ => Ok(()),
        }
    }

    fn handled(sim: &mut Sim<Self>) -> Checked {
        while let Ok(id) = sim.world.reported.try_recv() {
            let now = sim.net.now;
            let life = sim.life(id.0);
            life.reported += 1;
            if life.ends == 0 {
                return Err(format!("{now}: {id} is reported, but has not ended"));
            }
        }
        Ok(())
    }

    fn written(sim: &mut Sim<Self>, records: &Vec<(Vec<u8>, Option<Bytes>)>) -> Checked {
        for (key, _) in records.iter().filter(|it| it.1.is_none()) {
            let (now, gentle) = (sim.net.now, sim.gentle && !sim.stopping);
            let (id, _) = session_of(key, None).expect("it is a key");
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
        let (id, _) = session_of(key, None).expect("it is a key");
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

fn all_are_reported(sim: &Sim<FrontEnd>) -> Checked {
    match sim.world.lives.iter().find(|(_, life)| life.reported < life.ends) {
        Some((id, life)) => Err(format!("{id} was not reported: {life:?}")),
        None => Ok(()),
    }
}

#[test]
fn each_session_ends_once_after_its_time_and_is_reported() {
    let counts = run(50, false, all_are_reported);
    assert!(counts[0] > 9_000 && counts[1] > 9_000 && counts[2] > 20);
}

#[test]
fn an_owners_failure_ends_no_session() {
    run(25, true, all_are_reported);
}

#[test]
fn what_does_not_parse_is_none() {
    for ask in [Ask::Begin(0), Ask::Touch(Ids { ids: vec![7; 1000] })] {
        // A later version's field is skipped.
        let bytes = [ask.clone().into_bytes(), vec![0x7a, 1, 0]].concat();
        assert_eq!(Ask::of_bytes(&bytes), Some(ask));
    }
    assert_eq!(session_of(&key(u64::MAX), Some(&record())), Some((u64::MAX, true)));
    assert_eq!(session_of(&key(3), None), Some((3, false)));
    assert_eq!((session_of(b"?", None), session_of(&key(3), Some(b"?"))), (None, None));
    random_bytes(|bytes| {
        assert_eq!((Ask::of_bytes(bytes), Said::of_bytes(bytes)), (None, None));
        assert_eq!(session_of(&key(3), Some(bytes)), None);
    });
}
