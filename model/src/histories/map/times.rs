//! Times of an entry, as calls give them, and a policy that answers with them.

use super::ms;
use arbitrary::{Result, Unstructured};
use expiry::{Expiry, Lifetime, LifetimeError, Lifetimes};
use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Term {
    Default,
    Never,
    Zero,
    After(u64),
}

/// The time to live and the time to idle of a call that gives none.
pub const BY_DEFAULT: (Term, Term) = (Term::Default, Term::Default);

pub fn term(bytes: &mut Unstructured<'_>) -> Result<Term> {
    Ok(match bytes.int_in_range(0..=13u8)? {
        0..=5 => Term::Default,
        6 => Term::Never,
        7 => Term::Zero,
        _ => Term::After(bytes.int_in_range(1..=8000)?),
    })
}

impl Term {
    pub fn timeout(self) -> Lifetime {
        match self {
            Term::Default => Lifetime::Default,
            Term::Never => Lifetime::Never,
            Term::Zero => Lifetime::After(Duration::ZERO),
            Term::After(after) => Lifetime::After(ms(after)),
        }
    }

    /// `Err` if it is refused, `None` if it never ends.
    pub fn resolve(self, default: Option<u64>) -> std::result::Result<Option<u64>, LifetimeError> {
        match self {
            Term::Default => Ok(default),
            Term::Never => Ok(None),
            Term::Zero => Err(LifetimeError::Zero),
            Term::After(after) => Ok(Some(after)),
        }
    }
}

/// A policy whose answers follow from the value, and from the time that is left, up to 10 s.
pub struct ByValue;

impl ByValue {
    pub fn created(value: u64) -> (Term, Term) {
        match value % 4 {
            0 => (Term::Default, Term::Default),
            1 => (Term::After(3000), Term::Default),
            2 => (Term::Default, Term::After(2500)),
            _ => (Term::Never, Term::Never),
        }
    }

    /// `None` keeps the lifetime.
    pub fn updated(value: u64, left: u64) -> Option<(Term, Term)> {
        match value % 3 {
            0 => None,
            1 => Some((Term::After(left + 1000), Term::After(2000))),
            _ => Some((Term::Default, Term::Default)),
        }
    }

    pub fn read(value: u64, left: u64) -> Option<Term> {
        match value % 5 {
            0 | 1 => None,
            2 => Some(Term::After(4000)),
            3 => Some(Term::After(left / 2 + 1)),
            _ => Some(Term::Never),
        }
    }
}

impl Expiry<String, u64> for ByValue {
    fn created(&self, _: &String, value: &u64) -> Lifetimes {
        lifetimes(ByValue::created(*value))
    }

    fn updated(&self, _: &String, value: &u64, left: Duration) -> Lifetimes {
        ByValue::updated(*value, up_to_10_s(left)).map_or(Lifetimes::new().keep(), lifetimes)
    }

    fn read(&self, _: &String, value: &u64, left: Duration) -> Option<Lifetime> {
        ByValue::read(*value, up_to_10_s(left)).map(Term::timeout)
    }
}

fn up_to_10_s(left: Duration) -> u64 {
    left.min(ms(10_000)).as_millis() as u64
}

pub fn lifetimes((live, idle): (Term, Term)) -> Lifetimes {
    Lifetimes::new().live(live.timeout()).idle(idle.timeout())
}
