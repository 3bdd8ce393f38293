//! A map's entries in a file, from one life of the process to the next.

use expiry::expiring_map::Saved;
use expiry::ExpiringMap;
use expiry_examples::{beside, Done};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::time::SystemTime;

/// Writes all sessions, each with the time that it has left, and the time of day.
pub fn write(sessions: &ExpiringMap<String, u64>, path: &Path) -> Done {
    let saved: Vec<_> = sessions.save().collect();
    // A process that dies while it writes leaves the old file: the rename is one step.
    let new = beside(path, ".new");
    fs::write(&new, serde_json::to_vec(&(SystemTime::now(), saved))?)?;
    Ok(fs::rename(new, path)?)
}

/// Puts the sessions of the file into the map, if there is one. Sessions whose time has passed
/// since stay out.
pub fn read(sessions: &ExpiringMap<String, u64>, path: &Path) -> Done {
    let file = match fs::read(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        file => file?,
    };
    let (at, saved): (SystemTime, Vec<Saved<_, _>>) = serde_json::from_slice(&file)?;
    // An error: the system's clock was set back. Then no time has passed, as far as is known.
    let passed = at.elapsed().unwrap_or_default();
    sessions.load(saved, passed).into_iter().try_for_each(|refused| Err(refused.error.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn sessions_come_back_with_their_time_or_stay_out() {
        let name = format!("restart-test-{}", std::process::id());
        let [path, other] =
            [".1", ".new"].map(|end| std::env::temp_dir().join(format!("{name}{end}")));
        fs::write(&other, "").unwrap();
        let start = || ExpiringMap::<String, u64>::builder().build_manual().unwrap();
        let hour = Duration::from_secs(3600);
        let (old, new) = (start(), start());
        read(&new, &path).unwrap();
        assert!(new.is_empty(), "no file yet");
        old.insert_for("ada".to_string(), 1, hour).unwrap();
        old.insert("root".to_string(), 2).unwrap();
        write(&old, &path).unwrap();
        // A file of a minute ago, and of a day ago.
        let (_, saved): (SystemTime, Vec<Saved<String, u64>>) =
            serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        for (ago, stays) in [(60, true), (24 * 3600, false)] {
            let at = SystemTime::now() - Duration::from_secs(ago);
            fs::write(&path, serde_json::to_vec(&(at, &saved)).unwrap()).unwrap();
            let new = start();
            read(&new, &path).unwrap();
            let left = new.remaining("ada");
            assert!(left.is_some() == stays && left < Some(hour));
            assert_eq!(new.get_cloned("root"), Some(2));
        }
        fs::write(&path, "[").unwrap();
        assert!(read(&new, &path).is_err());
        // The file of another name stays as it is.
        assert!(fs::read(&other).unwrap().is_empty());
        for file in [path, other] {
            fs::remove_file(file).unwrap();
        }
    }
}
