//! The requests of `compare.txt` to this server and, where it is installed, to `redis-server`: each
//! reply has to be the one that the file has, and the same from both, byte for byte, but for the
//! differences that the file and README.md list.

use super::Server;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

/// What a text of the table stands for: it has `\xNN`, `\r`, `\n` and `\t` for some bytes.
fn unescaped(text: &str) -> Vec<u8> {
    let mut parts = text.split('\\');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let (byte, rest) = match part.split_at(1) {
            ("r", rest) => (b'\r', rest),
            ("n", rest) => (b'\n', rest),
            ("t", rest) => (b'\t', rest),
            _ => (u8::from_str_radix(&part[1..3], 16).unwrap(), &part[3..]),
        };
        bytes.push(byte);
        bytes.extend(rest.bytes());
    }
    bytes
}

fn bulk(word: &[u8]) -> Vec<u8> {
    [format!("${}\r\n", word.len()).as_bytes(), word, b"\r\n"].concat()
}

/// The replies to a line of the table.
fn replies(server: &Server, stream: &mut TcpStream, line: &str) -> Vec<u8> {
    const END: &[u8] = b"end of replies";
    let mut replies = Vec::new();
    if let Some(bytes) = line.strip_prefix("> ") {
        *stream = server.raw();
        stream.write_all(&unescaped(bytes)).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        stream.read_to_end(&mut replies).unwrap();
        return replies;
    }
    let (hears, words) = match line.strip_prefix("< ") {
        Some(line) => (true, line),
        None => (false, line),
    };
    let words: Vec<_> = words.split(' ').map(|word| unescaped(word.trim_matches('"'))).collect();
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    bytes.extend(words.iter().flat_map(|word| bulk(word)));
    let last = bulk(if hears { &words[1] } else { END });
    if !hears {
        bytes.extend([&b"*2\r\n$4\r\nPING\r\n"[..], &last].concat());
    }
    stream.write_all(&bytes).unwrap();
    let mut more = [0; 4096];
    while !replies.ends_with(&last) {
        match stream.read(&mut more) {
            Ok(0) | Err(_) => return [&replies[..], b"closed"].concat(),
            Ok(length) => replies.extend(&more[..length]),
        }
    }
    // A subscriber's answer to a ping has two parts.
    let ends: &[&[u8]] = if hears { &[] } else { &[&last, b"*2\r\n$4\r\npong\r\n"] };
    for end in ends {
        let length = replies.strip_suffix(*end).map_or(replies.len(), <[u8]>::len);
        replies.truncate(length);
    }
    replies
}

/// Replies as the table has them: a line's end is a space, and what is not printed is escaped.
fn shown(replies: &[u8]) -> String {
    let lines = replies.escape_ascii().to_string().replace("\\r\\n", " ");
    lines.replace("\\'", "'").replace("\\\"", "\"").trim_end().to_string()
}

#[test]
fn its_replies_are_those_of_redis_and_of_the_table() {
    let redis = Server::redis(&["--notify-keyspace-events", "xE", "--databases", "1"]);
    let cached = Server::start(&[]);
    // Redis counts two connections of its own.
    let _ = [cached.raw(), cached.raw()];
    let mut wrong = Vec::new();
    for paragraph in include_str!("compare.txt").split("\n\n") {
        let servers = redis.iter().chain([&cached]);
        let mut streams: Vec<_> = servers.map(|server| (server, server.raw())).collect();
        for line in std::iter::once("FLUSHALL => +OK").chain(paragraph.lines()) {
            if line.starts_with('#') {
                continue;
            }
            let (differs, text) = line.strip_prefix('!').map_or((false, line), |line| (true, line));
            let (sorts, text) = text.strip_prefix('~').map_or((false, text), |text| (true, text));
            let (text, wanted) = text.split_once(" =>").map_or((text, None), |(a, b)| (a, Some(b)));
            let replies = |(server, stream): &mut (&Server, TcpStream)| {
                let replies = replies(server, stream, text);
                let mut lines: Vec<_> =
                    replies.split_inclusive(|&byte| byte == b'\n').map(<[u8]>::to_vec).collect();
                if sorts {
                    lines.sort();
                }
                lines.concat()
            };
            let mut replies: Vec<_> = streams.iter_mut().map(replies).collect();
            let cached = replies.pop().unwrap();
            let is_redis = replies.iter().all(|redis| (*redis == cached) != differs);
            if !is_redis || wanted.is_some_and(|wanted| wanted.trim_start() != shown(&cached)) {
                let redis = replies.iter().map(|bytes| shown(bytes)).collect::<String>();
                wrong.push(format!("{line}\n  redis:  {redis}\n  cached: {}\n", shown(&cached)));
            }
        }
    }
    assert!(wrong.is_empty(), "{} lines of compare.txt:\n{}", wrong.len(), wrong.concat());
}
