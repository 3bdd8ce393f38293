//! Tables of cache loads, a row each: what a load is made of.

use crate::error::Error;
use serde::Serialize;
use std::path::Path;

/// The table that is built in.
const BUILT_IN: &str = include_str!("../../data/cache-ttl-mix.csv");
/// Its name in messages.
const BUILT_IN_NAME: &str = "the built-in table";
/// The row of the built-in table to run if the user names none: it has the most kinds of operations
/// and times to live.
const DEFAULT_ROW: &str = "23";
/// Shares are rounded: of many, the sum may be a little more than all.
const MOST: f64 = 1.1;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    Get,
    Gets,
    Set,
    Add,
    Replace,
    Cas,
    Append,
    Prepend,
    Incr,
    Decr,
    Delete,
}

const OPERATIONS: [(&str, Operation); 11] = [
    ("get", Operation::Get),
    ("gets", Operation::Gets),
    ("set", Operation::Set),
    ("add", Operation::Add),
    ("replace", Operation::Replace),
    ("cas", Operation::Cas),
    ("append", Operation::Append),
    ("prepend", Operation::Prepend),
    ("incr", Operation::Incr),
    ("decr", Operation::Decr),
    ("delete", Operation::Delete),
];

/// What a load is made of.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    pub cluster: String,
    /// Thousands of requests per second.
    pub rate: f64,
    pub key_bytes: usize,
    pub value_bytes: usize,
    /// Requests per key.
    pub frequency: f64,
    /// Times to live in seconds, and their shares.
    pub ttls: Vec<(u64, f64)>,
    /// Operations, and their shares.
    pub operations: Vec<(Operation, f64)>,
    /// The exponent of the keys' Zipf distribution, if it is known.
    pub zipf: Option<f64>,
}

/// Reads the row that was asked for.
pub fn read(file: Option<&Path>, row: Option<&str>) -> Result<Row, Error> {
    let (name, text) = match file {
        None => (BUILT_IN_NAME.to_string(), BUILT_IN.to_string()),
        Some(path) => {
            let text = std::fs::read_to_string(path)
                .map_err(|why| Error::Unreadable { path: path.into(), why: why.to_string() })?;
            (path.display().to_string(), text)
        }
    };
    let rows = parse(&name, &text)?;
    let row = row.or(file.is_none().then_some(DEFAULT_ROW));
    let found = rows.iter().find(|one| row.is_none_or(|row| one.cluster == row));
    found.cloned().ok_or_else(|| {
        let known: Vec<_> = rows.iter().map(|row| row.cluster.as_str()).collect();
        Error::NoRow {
            file: name,
            row: row.unwrap_or("at all").into(),
            known: if known.is_empty() { "no rows".into() } else { known.join(", ") },
        }
    })
}

/// A table being read: where a mistake is.
struct Table<'a> {
    name: &'a str,
    columns: Vec<String>,
}

/// A line of a table.
struct Line<'a> {
    table: &'a Table<'a>,
    number: u64,
    fields: csv::StringRecord,
}

/// All rows of a table.
fn parse(name: &str, text: &str) -> Result<Vec<Row>, Error> {
    let mut reader =
        csv::ReaderBuilder::new().flexible(true).trim(csv::Trim::All).from_reader(text.as_bytes());
    let mut table = Table { name, columns: Vec::new() };
    let header = reader.headers().map_err(|why| table.broken(&why))?;
    table.columns = header.iter().map(String::from).collect();
    let mut rows = Vec::new();
    for fields in reader.records() {
        let fields = fields.map_err(|why| table.broken(&why))?;
        let number = fields.position().map_or(0, csv::Position::line);
        let line = Line { table: &table, number, fields };
        rows.push(line.row()?);
    }
    Ok(rows)
}

impl Table<'_> {
    fn wrong(&self, line: u64, column: &str, why: String) -> Error {
        Error::Mix { file: self.name.into(), line, column: column.into(), why }
    }

    fn broken(&self, why: &csv::Error) -> Error {
        let line = why.position().map_or(1, csv::Position::line);
        self.wrong(line, "1", format!("this is no CSV: {why}"))
    }
}

impl Line<'_> {
    fn wrong(&self, column: &str, why: String) -> Error {
        self.table.wrong(self.number, column, why)
    }

    fn field(&self, column: &str) -> Result<&str, Error> {
        let at = self.table.columns.iter().position(|name| name == column);
        let at = at.ok_or_else(|| {
            let why =
                format!("the table has no such column, only {}", self.table.columns.join(", "));
            self.table.wrong(1, column, why)
        })?;
        let field = self.fields.get(at).filter(|field| !field.is_empty());
        field.ok_or_else(|| self.wrong(column, "there is nothing".into()))
    }

    /// A number that `is_right`, which `should` says in words.
    fn number<T: std::str::FromStr>(
        &self,
        column: &str,
        text: &str,
        should: &str,
        is_right: impl Fn(&T) -> bool,
    ) -> Result<T, Error> {
        let number = text.parse().ok().filter(is_right);
        number.ok_or_else(|| self.wrong(column, format!("{text:?} should be {should}")))
    }

    fn above_zero(&self, column: &str) -> Result<f64, Error> {
        let right = |number: &f64| number.is_finite() && *number > 0.0;
        self.number(column, self.field(column)?, "a number above 0", right)
    }

    fn bytes(&self, column: &str) -> Result<usize, Error> {
        let right = |bytes: &usize| (1..=1 << 24).contains(bytes);
        self.number(column, self.field(column)?, "a number of bytes, from 1 to 16 Mi", right)
    }

    /// `what:share`, separated by spaces. Shares add up to 1 at most, but for rounding.
    fn shares<T>(
        &self,
        column: &str,
        what: impl Fn(&str) -> Result<T, Error>,
    ) -> Result<Vec<(T, f64)>, Error> {
        let mut shares = Vec::new();
        for pair in self.field(column)?.split_whitespace() {
            let (name, share) = pair.split_once(':').ok_or_else(|| {
                self.wrong(column, format!("{pair:?} should be a name, a colon and a share"))
            })?;
            let right = |share: &f64| *share > 0.0 && *share <= 1.0;
            let share = self.number(column, share, "a share above 0 and up to 1", right)?;
            shares.push((what(name)?, share));
        }
        let sum: f64 = shares.iter().map(|(_, share)| share).sum();
        if sum > MOST {
            return Err(self
                .wrong(column, format!("the shares add up to {sum:.2}, which is more than all")));
        }
        Ok(shares)
    }

    fn row(&self) -> Result<Row, Error> {
        let surplus = self.fields.get(self.table.columns.len());
        if let Some(surplus) = surplus {
            let column = (self.table.columns.len() + 1).to_string();
            return Err(
                self.wrong(&column, format!("{surplus:?} is beyond the last column of the header"))
            );
        }
        let (ttls, operations) = ("ttl_seconds_share", "operation_share");
        let second = |text: &str| {
            let right = |seconds: &u64| (1..=1 << 32).contains(seconds);
            self.number(ttls, text, "a number of seconds, at least 1", right)
        };
        let operation = |text: &str| {
            let known = OPERATIONS.iter().find(|(name, _)| *name == text);
            known.map(|(_, operation)| *operation).ok_or_else(|| {
                let names: Vec<_> = OPERATIONS.iter().map(|(name, _)| *name).collect();
                self.wrong(operations, format!("{text:?} should be one of {}", names.join(", ")))
            })
        };
        let zipf = match self.field("zipf_alpha")? {
            "NA" => None,
            text => Some(self.number(
                "zipf_alpha",
                text,
                "NA or a number from 0 to 100",
                |exponent: &f64| (0.0..=100.0).contains(exponent),
            )?),
        };
        Ok(Row {
            cluster: self.field("cluster")?.into(),
            rate: self.above_zero("kilo_requests_per_s")?,
            key_bytes: self.bytes("key_bytes")?,
            value_bytes: self.bytes("value_bytes")?,
            frequency: self.above_zero("mean_frequency")?,
            ttls: self.shares(ttls, second)?,
            operations: self.shares(operations, operation)?,
            zipf,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "cluster,kilo_requests_per_s,key_bytes,value_bytes,mean_frequency,ttl_seconds_share,operation_share,zipf_alpha";

    fn message(line: &str) -> String {
        let text = format!("{HEADER}\n1,1.5,20,30,2.5,60:1.00,get:1.00,0.5\n{line}\n");
        parse("t.csv", &text).unwrap_err().to_string()
    }

    #[test]
    fn the_built_in_table_is_read() {
        let rows = parse(BUILT_IN_NAME, BUILT_IN).unwrap();
        assert_eq!(rows.len(), BUILT_IN.lines().count() - 1);
        let row = read(None, Some("53")).unwrap();
        assert_eq!((row.key_bytes, row.value_bytes), (36, 9213));
        assert_eq!(row.ttls, [(2_592_000, 0.66), (1_814_400, 0.34)]);
        assert_eq!(row.operations[2], (Operation::Prepend, 0.09));
        assert_eq!(read(None, Some("43")).unwrap().zipf, None);
        assert_eq!(read(None, None).unwrap().cluster, DEFAULT_ROW);
    }

    #[test]
    fn columns_may_be_in_any_order_and_more() {
        let text = "zipf_alpha,more,operation_share,ttl_seconds_share,mean_frequency,value_bytes,key_bytes,kilo_requests_per_s,cluster\n\
                    0,x,set:0.5 get:0.5,60:1,1,8,9,2.5,a b\n";
        let rows = parse("t", text).unwrap();
        assert_eq!((rows[0].cluster.as_str(), rows[0].rate), ("a b", 2.5));
        assert_eq!(rows[0].zipf, Some(0.0));
    }

    #[test]
    fn mistakes_are_named_by_line_and_column() {
        for (line, column, why) in [
            (
                "2,x,20,30,2.5,60:1.00,get:1.00,0.5",
                "kilo_requests_per_s",
                "\"x\" should be a number above 0",
            ),
            ("2,0,20,30,2.5,60:1.00,get:1.00,0.5", "kilo_requests_per_s", "above 0"),
            ("2,1,0,30,2.5,60:1.00,get:1.00,0.5", "key_bytes", "number of bytes"),
            ("2,1,20,1e9,2.5,60:1.00,get:1.00,0.5", "value_bytes", "number of bytes"),
            ("2,1,20,30,inf,60:1.00,get:1.00,0.5", "mean_frequency", "above 0"),
            ("2,1,20,30,2.5,60,get:1.00,0.5", "ttl_seconds_share", "a colon and a share"),
            ("2,1,20,30,2.5,0:1.00,get:1.00,0.5", "ttl_seconds_share", "at least 1"),
            ("2,1,20,30,2.5,60:2,get:1.00,0.5", "ttl_seconds_share", "up to 1"),
            ("2,1,20,30,2.5,60:1 61:0.5,get:1.00,0.5", "ttl_seconds_share", "more than all"),
            ("2,1,20,30,2.5,,get:1.00,0.5", "ttl_seconds_share", "there is nothing"),
            ("2,1,20,30,2.5,60:1.00,got:1.00,0.5", "operation_share", "one of get, gets, set"),
            ("2,1,20,30,2.5,60:1.00,get:1.00,-1", "zipf_alpha", "NA or a number"),
            ("2,1,20,30,2.5,60:1.00,get:1.00", "zipf_alpha", "there is nothing"),
            ("2,1,20,30,2.5,60:1.00,get:1.00,0.5,9", "9", "beyond the last column"),
        ] {
            let message = message(line);
            let place = format!("t.csv, line 3, column {column}: ");
            assert!(message.starts_with(&place) && message.contains(why), "{line}: {message}");
        }
    }

    #[test]
    fn a_table_without_a_column_or_the_row() {
        let text = HEADER.replace("value_bytes,", "") + "\n1,1.5,20,2.5,60:1.00,get:1.00,0.5\n";
        let message = parse("t.csv", &text).unwrap_err().to_string();
        assert!(
            message.starts_with("t.csv, line 1, column value_bytes: the table has no such"),
            "{message}"
        );
        let message = read(None, Some("2")).unwrap_err().to_string();
        assert!(message.contains("has no cluster 2; it has 1, 3, 7"), "{message}");
        let broken = parse("t.csv", "\u{0}");
        assert!(broken.is_ok_and(|rows| rows.is_empty()), "a header, and no rows");
    }
}
