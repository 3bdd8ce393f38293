//! `stress ttl`, end to end through the binary, about a second each; and what it says of tables
//! that are wrong.

use crate::common::{self, count, error, stress, with_all};

fn run(args: &str) -> serde_json::Value {
    common::run(&format!("ttl {args}"))
}

fn names() -> Vec<&'static str> {
    let table = include_str!("../../data/cache-ttl-mix.csv");
    let rows = table.lines().skip(1);
    rows.filter_map(|line| line.split(',').next()).collect()
}

#[test]
fn every_row_in_real_time() {
    for row in names() {
        let report =
            run(&format!("--row {row} --seconds 0.05 --memory 8 --allowance 20s --threads 3"));
        assert!(count(&report, "requests") > 0, "{row}");
        let ends = ["expired", "removed", "replaced", "closed"];
        let ends: u64 = ends.iter().map(|end| count(&report, end)).sum();
        assert_eq!(count(&report, "inserted"), ends, "{row}");
    }
}

#[test]
fn values_end_in_all_ways() {
    with_all(&["expired", "removed", "replaced"], 0.7, |seconds| {
        run(&format!("--seconds {seconds} --keys 2000 --squeeze 2000 --allowance 20s"))
    });
    let report = run("--integers --no-fill --seconds 0.2 --keys 500 --allowance 20s");
    assert_eq!(count(&report, "fills"), 0);
    assert!(count(&report, "deleted") > 0 && count(&report, "not_stored") > 0);
}

#[test]
fn a_table_of_ones_own() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mix.csv");
    let header = "cluster,kilo_requests_per_s,key_bytes,value_bytes,mean_frequency,ttl_seconds_share,operation_share,zipf_alpha";
    let row = "mine,1.5,20,30,2.5,60:0.5 5:0.5,gets:0.3 cas:0.2 replace:0.1 append:0.1 decr:0.1 set:0.2,NA";
    let name = file.to_str().unwrap().to_string();
    std::fs::write(&file, format!("{header}\n{row}\n")).unwrap();
    let report = run(&format!("--mix {name} --seconds 0.1 --allowance 20s"));
    assert_eq!(report["parameters"]["load"]["cluster"], "mine");
    assert!(report["notes"].to_string().contains("unknown: uniform"));

    let refused = |table: String, args: &[&str], why: &str| {
        std::fs::write(&file, table).unwrap();
        let mut all = vec!["ttl", "--mix", &name];
        all.extend(args);
        error(&stress(&all), why);
    };
    let wrong = row.replace("5:0.5", "five:0.5");
    refused(
        format!("{header}\n{row}\n{wrong}\n"),
        &[],
        "mix.csv, line 3, column ttl_seconds_share: \"five\" should be a number of seconds",
    );
    refused(format!("{header}\n{row}\n"), &["--row", "7"], "has no cluster 7; it has mine");
    refused(format!("{header}\n"), &[], "it has no rows");
    refused(
        header.replace("zipf_alpha", "alpha") + "\n" + row + "\n",
        &[],
        "line 1, column zipf_alpha: the table has no such column",
    );
    let none = folder.path().join("none.csv");
    error(&stress(&["ttl", "--mix", none.to_str().unwrap()]), "cannot read");
}
