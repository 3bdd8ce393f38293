//! Tests of what is read and what is skipped.

use super::*;

fn lines(text: &[u8]) -> (Vec<Vec<u8>>, u64) {
    let mut lines = Lines::new(text);
    let mut all = Vec::new();
    let mut line = Vec::new();
    while lines.next_line(&mut line).unwrap() {
        all.push(line.clone());
    }
    assert_eq!(lines.bytes, text.len() as u64);
    (all, lines.cuts)
}

#[test]
fn lines_end_with_newlines_or_the_text() {
    assert_eq!(lines(b""), (vec![], 0));
    assert_eq!(lines(b"\n"), (vec![vec![]], 0));
    assert_eq!(lines(b"a\n\nb"), (vec![b"a".to_vec(), vec![], b"b".to_vec()], 0));
}

#[test]
fn long_lines_are_cut_after_a_word() {
    let mut text = b"word ".repeat(LONGEST_LINE / 5 * 2);
    text.extend(b"\nlast");
    let (all, cuts) = lines(&text);
    assert!(cuts >= 1);
    assert_eq!(all.len() as u64, 2 + cuts);
    assert!(all.iter().all(|line| line.len() <= LONGEST_LINE));
    let words = super::super::words::words;
    for line in &all[..all.len() - 1] {
        assert!(words(line).all(|place| &line[place.clone()] == b"word"));
    }
    let found: usize = all.iter().map(|line| words(line).count()).sum();
    assert_eq!(found, LONGEST_LINE / 5 * 2 + 1);
}

#[test]
fn a_run_longer_than_a_line_is_cut_between_its_words() {
    let (all, cuts) = lines(&vec![b'x'; 2 * LONGEST_LINE + 10]);
    let lengths: Vec<usize> = all.iter().map(Vec::len).collect();
    assert_eq!((lengths, cuts), (vec![LONGEST_LINE, LONGEST_LINE, 10], 2));
    // Exactly full: nothing is continued, so nothing counts as cut.
    let (all, cuts) = lines(&vec![b'x'; LONGEST_LINE]);
    assert_eq!((all.len(), cuts), (1, 0));
}

#[test]
fn other_files_are_skipped_with_their_reasons() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    assert!(open_text(&write("text", "héllo\n".as_bytes())).is_ok());
    assert!(matches!(open_text(&write("zero", b"a\0b")), Err(Skip::Binary)));
    assert!(matches!(open_text(&write("latin", b"caf\xe9 au lait")), Err(Skip::NotUtf8)));
    // A character across the head's end is no reason to skip; half of one at the end of the file is.
    let mut across = vec![b'a'; HEAD - 1];
    across.extend("é".as_bytes());
    assert!(open_text(&write("across", &across)).is_ok());
    assert!(matches!(open_text(&write("half", b"caf\xc3")), Err(Skip::NotUtf8)));
    match open_text(&dir.path().join("gone")) {
        Err(Skip::Unreadable(why)) => assert!(!why.is_empty()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_file_that_vanishes_is_counted_with_its_reason() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a"), "x\n").unwrap();
    std::fs::write(dir.path().join("b"), "y\n").unwrap();
    let files = Files::list(Some(dir.path())).unwrap();
    std::fs::remove_file(dir.path().join("a")).unwrap();
    let (number, mut lines) = files.next_text().unwrap();
    let mut line = Vec::new();
    assert!(lines.next_line(&mut line).unwrap());
    assert_eq!((number, line), (1, b"y".to_vec()));
    assert!(files.next_text().is_none());
    let skipped = files.lock();
    assert_eq!(skipped.counts["unreadable"], 1);
    assert!(skipped.named[0].contains("/a: "), "{:?}", skipped.named);
}

#[cfg(unix)]
#[test]
fn links_within_a_folder_are_not_followed() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a"), "x\n").unwrap();
    std::os::unix::fs::symlink(dir.path(), dir.path().join("loop")).unwrap();
    let files = Files::list(Some(dir.path())).unwrap();
    assert_eq!(files.list.len(), 1);
    assert_eq!(files.lock().counts["no regular file"], 1);
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(dir.path().join("a"), &link).unwrap();
    assert_eq!(Files::list(Some(&link)).unwrap().list.len(), 1);
}
