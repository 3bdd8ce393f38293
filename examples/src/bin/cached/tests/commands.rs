use super::*;
use crate::protocol::Requests;
use crate::Options;
use clap::Parser;
use expiry_examples::eventually;
use std::thread;

fn server(options: &[&str]) -> Arc<Server> {
    let options = ["cached"].iter().chain(options);
    Arc::new(Server::new(Options::parse_from(options)).unwrap())
}

fn session(server: &Arc<Server>) -> Session {
    Session::new(server.clone(), 1)
}

/// The reply, with its line ends as spaces.
fn ask(session: &mut Session, line: &str) -> String {
    let mut requests = Requests::default();
    requests.room().extend_from_slice(format!("{line}\r\n").as_bytes());
    while let Some(request) = requests.next().unwrap() {
        session.execute(request);
    }
    let reply = String::from_utf8(std::mem::take(&mut session.replies.bytes)).unwrap();
    reply.replace("\r\n", " ").trim_end().to_string()
}

/// Asks line by line in one session, and compares what comes before and after ` => `.
fn script(script: &str) {
    let mut session = session(&server(&["--max-memory=7gb"]));
    for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (request, wanted) = line.split_once(" => ").unwrap();
        assert_eq!(ask(&mut session, request), wanted, "{request}");
    }
}

#[test]
fn commands_stand_by_name_and_are_found_in_capitals_or_not() {
    assert!(COMMANDS.windows(2).all(|two| two[0].name < two[1].name));
    for command in COMMANDS {
        assert_eq!(find(command.name.to_uppercase().as_bytes()).unwrap().name, command.name);
    }
    assert!(find(b"").is_none() && find(b"getx").is_none() && find(&[b'x'; 1000]).is_none());
}

#[test]
fn strings() {
    script(
        "get k => $-1
        set k v => +OK
        GET k => $1 v
        set k v2 nx => $-1
        set k v2 xx get => $1 v
        set other v xx => $-1
        set k v3 nx get => $2 v2
        get k => $2 v2
        set k v nx xx => -ERR syntax error
        set k v ex => -ERR syntax error
        set k v ex 1 px 1 => -ERR syntax error
        set k v ex 1 keepttl => -ERR syntax error
        set k v ex x => -ERR value is not an integer or out of range
        set k v ex 0 => -ERR invalid expire time in 'set' command
        set k v ex 9223372036854775807 => -ERR invalid expire time in 'set' command
        setex k -1 v => -ERR invalid expire time in 'setex' command
        setnx k v => :0
        getset k v5 => $2 v2
        strlen k => :2
        append k xyz => :5
        getdel k => $5 v5xyz
        getdel k => $-1
        mset a 1 b 2 => +OK
        mset a 1 b => -ERR wrong number of arguments for 'mset' command
        mget a b c => *3 $1 1 $1 2 $-1
        msetnx c 3 b 4 => :0
        msetnx c 3 c 4 => :1
        mget b c => *2 $1 2 $1 4",
    );
}

#[test]
fn numbers() {
    script(
        "incr n => :1
        incrby n 41 => :42
        decr n => :41
        decrby n 42 => :-1
        incrby n x => -ERR value is not an integer or out of range
        decrby n -9223372036854775808 => -ERR decrement would overflow
        set n 9223372036854775807 => +OK
        incr n => -ERR increment or decrement would overflow
        set n ' 1' => +OK
        incr n => -ERR value is not an integer or out of range
        set n 10.50 => +OK
        incrbyfloat n 0.1 => $4 10.6
        incrbyfloat n -5 => $3 5.6
        set n 3.0e3 => +OK
        incrbyfloat n 200 => $4 3200
        incrbyfloat n inf => -ERR increment would produce NaN or Infinity
        incrbyfloat n nan => -ERR value is not a valid float
        set n x => +OK
        incrbyfloat n 1 => -ERR value is not a valid float",
    );
}

#[test]
fn deadlines() {
    script(
        "ttl k => :-2
        set k v => +OK
        ttl k => :-1
        expire k 100 gt => :0
        expire k 100 xx => :0
        expire k 100 lt => :1
        ttl k => :100
        expire k 50 gt => :0
        expire k 200 nx => :0
        expire k 200 gt => :1
        expire k 100 nx gt => -ERR NX and XX, GT or LT options at the same time are not compatible
        expire k 100 gt lt => -ERR GT and LT options at the same time are not compatible
        expire k 100 ab => -ERR Unsupported option ab
        expire k x => -ERR value is not an integer or out of range
        expire k 9223372036854775807 => -ERR invalid expire time in 'expire' command
        expire k -9223372036854775808 => -ERR invalid expire time in 'expire' command
        incr k => -ERR value is not an integer or out of range
        append k v => :2
        ttl k => :200
        set k v keepttl => +OK
        ttl k => :200
        set k v => +OK
        ttl k => :-1
        set k v exat 33177117420 => +OK
        expiretime k => :33177117420
        pexpireat k 33177117420123 => :1
        pexpiretime k => :33177117420123
        pexpireat k 9223372036854775807 => :1
        expiretime k => :9223372036854776
        pttl none => :-2
        persist k => :1
        persist k => :0
        expiretime k => :-1
        getex k ex 100 => $1 v
        ttl k => :100
        getex k => $1 v
        ttl k => :100
        getex k persist => $1 v
        ttl k => :-1
        getex k ex 0 => -ERR invalid expire time in 'getex' command
        getex k nx => -ERR syntax error
        getex none ex 1 => $-1
        expire k -1 => :1
        exists k => :0
        set k v => +OK
        set k v pxat 1 => +OK
        exists k => :0
        setex k 10 v => +OK
        getset k w => $1 v
        ttl k => :-1",
    );
}

#[test]
fn keys_and_scans() {
    script(
        "mset one 1 two 2 => +OK
        exists one one three => :2
        touch one three => :1
        type one => +string
        type three => +none
        keys o* => *1 $3 one
        dbsize => :2
        del one one => :1
        randomkey => $3 two
        scan 0 match t?o type string => *2 $1 0 *1 $3 two
        scan 0 type list => *2 $1 0 *0
        scan x => -ERR invalid cursor
        scan 0 count 0 => -ERR syntax error
        flushall nosync => -ERR syntax error
        flushall => +OK
        randomkey => $-1",
    );
    let server = server(&[]);
    let mut session = session(&server);
    for key in 0..5000 {
        server.cache.insert(key.to_string().as_bytes(), Stored::new(b"", None)).unwrap();
    }
    let (mut cursor, mut seen, mut calls) = ("0".to_string(), Vec::new(), 0);
    loop {
        let reply = ask(&mut session, &format!("scan {cursor} count 100"));
        let mut words = reply.split(' ').filter(|word| !word.starts_with(['*', '$']));
        cursor = words.next().unwrap().to_string();
        seen.extend(words.map(str::to_string));
        calls += 1;
        if cursor == "0" {
            break;
        }
    }
    assert_eq!((seen.len(), calls), (5000, 50));
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 5000);
}

#[test]
fn of_the_connection() {
    script(
        "ping => +PONG
        ping hi => $2 hi
        ping a b => -ERR wrong number of arguments for 'ping' command
        echo hi => $2 hi
        select 0 => +OK
        select 1 => -ERR DB index is out of range
        foo a b => -ERR unknown command 'foo', with args beginning with: 'a' 'b'
        get => -ERR wrong number of arguments for 'get' command
        client getname => $-1
        client setname me => +OK
        client getname => $2 me
        client setname 'a b' => -ERR Client names cannot contain spaces, newlines or special characters.
        client foo => -ERR unknown subcommand 'foo'. Try CLIENT HELP.
        client setname => -ERR wrong number of arguments for 'client|setname' command
        config get maxm* => *4 $9 maxmemory $10 7516192768 $16 maxmemory-policy $14 allkeys-s3fifo
        config set notify-keyspace-events Ex => +OK
        hello 4 => -NOPROTO unsupported protocol version
        hello x => -ERR Protocol version is not an integer or out of range
        hello 2 foo => -ERR Syntax error in HELLO option 'foo'
        hello 3 auth me secret setname you => %7 $6 server $5 redis $7 version $5 7.2.4 $5 proto :3 $2 id :1 $4 mode $10 standalone $4 role $6 master $7 modules *0
        get none => _
        client getname => $3 you
        config get maxmemory => %1 $9 maxmemory $10 7516192768
        subscribe one => >3 $9 subscribe $3 one :1
        echo hi => $2 hi",
    );
}

#[test]
fn a_subscriber_may_only_listen_until_it_has_unsubscribed() {
    script(
        "subscribe a b => *3 $9 subscribe $1 a :1 *3 $9 subscribe $1 b :2
        psubscribe a* => *3 $10 psubscribe $2 a* :3
        get k => -ERR Can't execute 'get': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context
        ping => *2 $4 pong $0
        unsubscribe => *3 $11 unsubscribe $1 a :2 *3 $11 unsubscribe $1 b :1
        unsubscribe => *3 $11 unsubscribe $-1 :1
        punsubscribe a* => *3 $12 punsubscribe $2 a* :0
        get k => $-1
        quit => +OK",
    );
}

#[test]
fn a_request_for_too_many_subscriptions_is_refused_as_a_whole() {
    let mut session = session(&server(&[]));
    let names = |number: usize| (0..number).map(|name| format!(" {name}")).collect::<String>();
    let refused = "-ERR a connection may have at most 1024 subscriptions";
    assert_eq!(ask(&mut session, &format!("psubscribe{}", names(1025))), refused);
    assert_eq!(ask(&mut session, "get k"), "$-1");
    assert!(ask(&mut session, &format!("psubscribe{}", names(1024))).ends_with(" 1023 :1024"));
    assert_eq!(ask(&mut session, "subscribe one"), refused);
    ask(&mut session, "punsubscribe 0");
    assert_eq!(ask(&mut session, "subscribe one"), "*3 $9 subscribe $3 one :1024");
}

#[test]
fn an_option_beyond_its_range_is_refused() {
    for option in ["--max-clients=0", "--max-clients=4294967296", "--tcp-keepalive=32768s"] {
        let error = Options::try_parse_from(["cached", option]).map(|_| ()).unwrap_err();
        assert!(error.to_string().contains("invalid value"), "{error}");
    }
    server(&["--max-clients=4294967295", "--tcp-keepalive=32767s"]);
}

#[test]
fn a_full_memory_evicts_or_refuses_by_weight() {
    let value = "v".repeat(880);
    let fill = |policy| {
        let server = server(&["--maxmemory=100000", "--maxmemory-policy", policy]);
        let mut session = session(&server);
        let replies: Vec<_> =
            (0..300).map(|key| ask(&mut session, &format!("set {key:03} {value}"))).collect();
        (server, session, replies.iter().filter(|reply| *reply == "+OK").count())
    };
    for policy in ["allkeys-s3fifo", "allkeys-lru", "volatile-ttl"] {
        let (server, _, done) = fill(policy);
        assert_eq!((done, server.cache.map.len()), (300, 99), "{policy}");
    }
    let (server, mut session, done) = fill("noeviction");
    assert_eq!((done, server.cache.map.len()), (99, 99));
    let oom = "-OOM command not allowed when used memory > 'maxmemory'.";
    assert_eq!(ask(&mut session, "set x y"), "+OK"); // 121 of the 703 left
    for _ in 0..20 {
        assert_eq!(ask(&mut session, "set x z"), "+OK");
    }
    assert_eq!(ask(&mut session, &format!("append x {value}")), oom);
    assert_eq!(ask(&mut session, "get x"), "$1 z");
    // An entry of the old one's weight takes its place.
    assert_eq!(ask(&mut session, "expire 002 100"), ":1");
    assert_eq!(ask(&mut session, &format!("set 002 {value}")), "+OK");
    assert_eq!(ask(&mut session, "del 001"), ":1");
    assert_eq!(ask(&mut session, &format!("set 001 {value}")), "+OK");
    ask(&mut session, "flushall");
    assert_eq!(ask(&mut session, &format!("set 001 {value}")), "+OK");
}

#[test]
fn counters_of_many_clients_lose_nothing_and_at_most_one_msetnx_wins() {
    let server = server(&[]);
    let work = || {
        let mut session = session(&server);
        let won = (0..500).filter(|n| {
            ask(&mut session, "incr n");
            ask(&mut session, &format!("msetnx a{n} 1 b{n} 1")) == ":1"
        });
        won.count()
    };
    let won: usize = thread::scope(|scope| {
        let threads: Vec<_> = (0..3).map(|_| scope.spawn(work)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert!(won <= 500, "{won}");
    assert_eq!(ask(&mut session(&server), "get n"), "$4 1500");
}

#[test]
fn each_key_that_expires_is_heard_of_once_for_each_subscription_and_no_other() {
    let server = server(&[]);
    let (mut writer, mut reader) = (session(&server), session(&server));
    ask(&mut reader, "subscribe __keyevent@0__:expired other");
    ask(&mut reader, "psubscribe __key*__:expired");
    ask(&mut writer, "mset removed 1 replaced 1");
    ask(&mut writer, "del removed");
    ask(&mut writer, "set replaced 2");
    ask(&mut writer, "set over 1 px 1");
    let mut events = reader.events.take().unwrap();
    let key = eventually(|| events.try_recv().ok());
    reader.tell(&key.unwrap()).unwrap();
    assert_eq!(
        ask(&mut reader, "ping"),
        "*3 $7 message $22 __keyevent@0__:expired $4 over *4 $8 pmessage $16 __key*__:expired \
         $22 __keyevent@0__:expired $4 over +PONG"
    );
    ask(&mut writer, "set last 1 px 1");
    assert_eq!(*eventually(|| events.try_recv().ok().flatten()), *b"last");
}
