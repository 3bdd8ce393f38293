use super::*;
use proptest::prelude::*;
use std::time::{Duration, Instant};

type Words = Vec<Vec<u8>>;

/// All requests in `stream`, which comes in pieces of these lengths, over and over; and how the
/// connection ends.
fn read(stream: &[u8], pieces: &[usize]) -> (Vec<Words>, Result<(), String>) {
    let (mut requests, mut found) = (Requests::default(), Vec::new());
    let (mut rest, mut pieces) = (stream, pieces.iter().cycle());
    loop {
        match requests.next() {
            Ok(Some(request)) => found.push(request.from(0).map(<[u8]>::to_vec).collect()),
            Ok(None) if rest.is_empty() => return (found, Ok(())),
            Ok(None) => {
                let (piece, later) = rest.split_at((*pieces.next().unwrap()).min(rest.len()));
                requests.room().extend_from_slice(piece);
                rest = later;
            }
            Err(error) => return (found, Err(error.to_string())),
        }
    }
}

fn requests(stream: &str) -> Vec<Vec<String>> {
    let (found, end) = read(stream.as_bytes(), &[usize::MAX]);
    assert_eq!(end, Ok(()));
    let text = |word: Vec<u8>| String::from_utf8(word).unwrap();
    found.into_iter().map(|words| words.into_iter().map(text).collect()).collect()
}

fn error(stream: &[u8]) -> String {
    read(stream, &[usize::MAX]).1.unwrap_err()
}

#[test]
fn arrays_and_inline_requests_are_read_and_empty_ones_passed_over() {
    let stream = "\r\n*2\r\n$3\r\nGET\r\n$0\r\n\r\n*0\r\n*-1\r\nping  two\n \n*1\r\n$2\r\n\r\n\r\n";
    assert_eq!(requests(stream), [vec!["GET", ""], vec!["ping", "two"], vec!["\r\n"]]);
}

#[test]
fn inline_words_are_unquoted() {
    let stream = r#"set "a b" 'c d' "\x41\n\"" '\'' "" e"#.to_string() + "\r\n";
    assert_eq!(requests(&stream), [["set", "a b", "c d", "A\n\"", "'", "", "e"]]);
    for stream in ["\"a\r\n", "'a\n", "\"a\"b\n", "'a'b\n", "\"\\\n"] {
        assert_eq!(error(stream.as_bytes()), QUOTES, "{stream}");
    }
}

#[test]
fn lines_without_end_are_errors() {
    let long = "x".repeat(MAX_LINE + 1);
    assert_eq!(error(long.as_bytes()), "too big inline request");
    assert_eq!(error(format!("*{long}").as_bytes()), "too big mbulk count string");
    assert_eq!(error(format!("*1\r\n${long}").as_bytes()), "too big bulk count string");
}

#[test]
fn a_request_of_a_gigabyte_is_refused_before_its_bulk_comes() {
    let mut requests = Requests::default();
    let half = format!("*3\r\n${}\r\n", MAX_BULK);
    requests.room().extend_from_slice(half.as_bytes());
    // A copy: without optimization `resize` takes seconds.
    requests.room().extend_from_slice(&vec![0; MAX_BULK]);
    requests.room().extend_from_slice(format!("\r\n${}\r\n", MAX_BULK).as_bytes());
    assert_eq!(requests.next().unwrap_err().to_string(), "too big request");
}

#[test]
fn an_announced_bulk_takes_no_memory_before_it_comes_and_a_whole_request_none_after() {
    let mut requests = Requests::default();
    requests.room().extend_from_slice(b"*1\r\n$500000000\r\n");
    assert!(requests.next().unwrap().is_none());
    assert!(requests.room().capacity() <= 2 * READ.1);
    let mut requests = Requests::default();
    requests.room().extend_from_slice(b"*1\r\n$4\r\nPING\r\n");
    assert!(requests.next().unwrap().is_some() && requests.next().unwrap().is_none());
    requests.rest();
    assert_eq!(requests.buffer.capacity(), 0);
}

/// The bytes of a word that come one by one cost milliseconds here. Any work for each word before
/// it at each byte takes minutes.
#[test]
fn a_byte_of_a_long_request_costs_the_same_after_a_million_words() {
    let mut requests = Requests::default();
    requests.room().extend_from_slice(b"*1048576\r\n");
    requests.room().extend(b"$6\r\nEXISTS\r\n".repeat((1 << 20) - 1));
    requests.room().extend_from_slice(b"$100000\r\n");
    assert!(requests.next().unwrap().is_none());
    let began = Instant::now();
    for byte in 0..100_000 {
        requests.room().push(b'x');
        assert!(requests.next().unwrap().is_none());
        assert!(began.elapsed() < Duration::from_secs(20), "{byte} bytes");
    }
    requests.room().extend_from_slice(b"\r\n");
    let request = requests.next().unwrap().unwrap();
    assert_eq!((request.len(), request.word(0)), (1 << 20, &b"EXISTS"[..]));
    assert_eq!(request.word((1 << 20) - 1), [b'x'; 100_000]);
}

#[test]
fn a_number_has_one_spelling() {
    for number in [i64::MIN, -1, 0, 7, 10, i64::MAX] {
        assert_eq!(integer(number.to_string().as_bytes()), Some(number));
    }
    for text in ["", "-", "+1", "01", "-0", "00", " 1", "1 ", "1.0", "9223372036854775808", "x"] {
        assert_eq!(integer(text.as_bytes()), None, "{text}");
    }
}

#[test]
fn replies_have_the_form_of_the_version() {
    let mut replies = Replies::new(1000);
    let all = |replies: &mut Replies| {
        replies.bulk_or_null(None).unwrap();
        replies.map(1).unwrap();
        replies.push(1).unwrap();
        String::from_utf8(std::mem::take(&mut replies.bytes)).unwrap()
    };
    assert_eq!(all(&mut replies), "$-1\r\n*2\r\n*1\r\n");
    replies.version = 3;
    assert_eq!(all(&mut replies), "_\r\n%1\r\n>1\r\n");
    replies.error("no\r\nsecond line").unwrap();
    replies.error("-OOM no").unwrap();
    assert_eq!(replies.bytes, b"-ERR no  second line\r\n-OOM no\r\n");
    assert!(!replies.overflows());
    replies.bulk([b'x'; 2000]).unwrap();
    let length = replies.bytes.len();
    assert!(replies.bulk(b"more").is_err());
    assert!(replies.overflows() && replies.bytes.len() == length);
}

fn framed(words: &Words) -> Vec<u8> {
    let mut stream = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        stream.extend(format!("${}\r\n", word.len()).bytes());
        stream.extend(word);
        stream.extend(b"\r\n");
    }
    stream
}

proptest! {
    #[test]
    fn what_was_framed_is_read_however_it_is_cut(
        sent in prop::collection::vec(
            prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..5), 0..6),
        pieces in prop::collection::vec(1usize..60, 1..5),
    ) {
        let stream: Vec<u8> = sent.iter().flat_map(framed).collect();
        prop_assert_eq!(read(&stream, &pieces), (sent, Ok(())));
    }

    #[test]
    fn the_cuts_make_no_difference_for_garbage(
        stream in prop::collection::vec(
            prop::sample::select(b"*$0123-\r\n\"'\\x aG".to_vec()), 0..60),
        pieces in prop::collection::vec(1usize..9, 1..5),
    ) {
        prop_assert_eq!(read(&stream, &pieces), read(&stream, &[usize::MAX]));
    }
}
