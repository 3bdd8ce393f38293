//! The pictures of the documents: `cargo xtask pictures` writes `docs/pictures/*.svg`.
//!
//! A picture is 700 px wide, needs no external font, and follows the reader's light or dark scheme.
//! `rect` refuses text that does not fit, and a test refuses labels that overlap.

use super::tree::{put, root};
use std::path::PathBuf;

const WIDTH: i32 = 700;

const STYLE: &str = "\
text{font:12px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#1f2328}
.mid{text-anchor:middle}.head{font-weight:bold}.dim{fill:#59636e}.page{fill:#ffffff}
.box{fill:#f6f8fa;stroke:#818b98}.hot{fill:#ddf4ff;stroke:#0969da}
.gone{fill:none;stroke:#818b98;stroke-dasharray:4 3}
.arrow{marker-end:url(#head)}.arrow,circle{stroke:#59636e;fill:none}.thin{stroke:#d1d9e0}
#tip{fill:#59636e}
@media (prefers-color-scheme:dark){text{fill:#f0f6fc}
.dim{fill:#9198a1}.page{fill:#0d1117}.box{fill:#151b23;stroke:#656c76}
.hot{fill:#11284a;stroke:#4493f8}.gone{stroke:#656c76}
.arrow,circle{stroke:#9198a1}.thin{stroke:#3d444d}#tip{fill:#9198a1}}";

/// Four numbers: of a box or line, as SVG takes them; of what no label may cover, its edges.
type Area = [i32; 4];

#[derive(Default)]
struct Picture {
    body: String,
    boxes: Vec<Area>,
    labels: Vec<Area>,
}

/// Pixels that a line of text takes, at most.
fn width(text: &str) -> i32 {
    (text.chars().count() as i32 * 72 + 9) / 10
}

impl Picture {
    fn add(&mut self, element: String) {
        self.body += &element;
        self.body.push('\n');
    }

    fn text(&mut self, class: &str, x: i32, y: i32, text: &str) {
        self.add(format!(r#"<text class="{class}" x="{x}" y="{y}">{text}</text>"#));
    }

    /// A rectangle with lines of text in its middle. The first of several is its name.
    fn rect(&mut self, class: &str, [x, y, w, h]: Area, lines: &[&str]) {
        let size = format!(r#"width="{w}" height="{h}""#);
        self.add(format!(r#"<rect class="{class}" x="{x}" y="{y}" {size} rx="4"/>"#));
        self.boxes.push([x, y, x + w, y + h]);
        let rows = lines.len() as i32;
        assert!(rows * 16 <= h, "{lines:?}: too high");
        for (row, line) in (0..).zip(lines) {
            assert!(width(line) + 8 <= w, "{line}: too wide");
            let class = if row == 0 && rows > 1 { "mid head" } else { "mid" };
            self.text(class, x + w / 2, y + h / 2 - rows * 8 + row * 16 + 12, line);
        }
    }

    /// Text beside boxes, which begins at `x`.
    fn label(&mut self, x: i32, y: i32, text: &str) {
        self.labels.push([x, y - 10, x + width(text), y + 3]);
        self.text("dim", x, y, text);
    }

    fn line(&mut self, class: &str, [x1, y1, x2, y2]: Area) {
        self.add(format!(r#"<line class="{class}" x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"/>"#));
    }

    fn finish(self, title: &str, height: i32) -> (Self, String) {
        let size = format!(r#"width="{WIDTH}" height="{height}""#);
        let svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" {size} viewBox=\"0 0 {WIDTH} {height}\" \
             role=\"img\">\n<title>{title}</title>\n<style>\n{STYLE}\n</style>\n\
             <marker id=\"head\" markerWidth=\"8\" markerHeight=\"8\" refX=\"7\" refY=\"4\" \
             orient=\"auto\"><path id=\"tip\" d=\"M0 0L8 4L0 8z\"/></marker>\n\
             <rect class=\"page\" {size}/>\n{}</svg>\n",
            self.body
        );
        (self, svg)
    }
}

fn entry() -> (Picture, String) {
    let mut p = Picture::default();
    p.rect("box", [12, 52, 76, 40], &["key"]);
    p.line("arrow", [88, 72, 160, 72]);
    p.label(108, 64, "hash");
    p.rect("box", [160, 40, 150, 64], &["index bucket", "7 words, each", "hash | slot"]);
    p.line("arrow", [310, 72, 372, 72]);
    p.label(322, 64, "slot");
    p.label(372, 18, "slot block: a header and 16 slots");
    p.add(r#"<rect class="gone" x="364" y="26" width="332" height="66" rx="4"/>"#.into());
    p.rect("box", [372, 30, 318, 24], &["next expiration, dirty bit"]);
    for slot in 0..16 {
        p.rect(if slot == 0 { "hot" } else { "box" }, [372 + slot * 20, 60, 18, 24], &[]);
    }
    p.line("thin", [372, 84, 372, 168]);
    p.line("thin", [390, 84, 690, 168]);
    p.label(384, 158, "the slot");
    p.rect("hot", [372, 168, 150, 72], &["lease", "deadline,", "generation, state"]);
    p.rect("hot", [540, 168, 150, 72], &["payload", "key and value,", "or an ack tree"]);
    p.line("arrow", [424, 270, 400, 242]);
    p.label(430, 266, "touch, remove and expiry");
    p.label(430, 284, "swap this one word");
    p.line("arrow", [364, 92, 268, 168]);
    p.label(166, 126, "due at its next");
    p.label(166, 142, "expiration");
    p.add(r#"<circle cx="235" cy="204" r="44"/><circle cx="235" cy="204" r="14"/>"#.into());
    for (x, y) in [(44, 0), (31, 31), (0, 44), (-31, 31)] {
        p.line("thin", [235 + x / 3, 204 + y / 3, 235 + x, 204 + y]);
        p.line("thin", [235 - x / 3, 204 - y / 3, 235 - x, 204 - y]);
    }
    p.boxes.push([191, 160, 279, 248]);
    p.label(196, 266, "timer wheel");
    p.line("arrow", [191, 204, 118, 204]);
    p.label(130, 196, "blocks");
    p.rect("box", [12, 172, 104, 64], &["reaper", "ends slots", "that are due"]);
    p.line("arrow", [64, 236, 64, 282]);
    p.label(72, 262, "each end, once");
    p.rect("box", [12, 282, 160, 28], &["listener or channel"]);
    p.finish("From a key to its slot, and on to the timer wheel and the reaper", 322)
}

fn acks() -> (Picture, String) {
    let mut p = Picture::default();
    for (x, head) in [(20, "4-bit ids, not 64"), (330, "the tracker XORs"), (560, "and keeps")] {
        p.label(x, 22, head);
    }
    // What happens, what is XORed, what is kept and what that is, and the states of a, b and c.
    let steps = [
        ("the source issues a", "a = 0101", "0101", "a", ["hot", "", ""]),
        ("b, c are derived; a acked", "a ^ b ^ c = 1111", "1010", "b ^ c", ["gone", "hot", "hot"]),
        ("b is acked", "b = 0011", "1001", "c", ["gone", "gone", "hot"]),
        ("c is acked: all is done", "c = 1001", "0000", "reports: acked", ["gone"; 3]),
    ];
    for (row, (what, xored, kept, means, states)) in (0..).zip(steps) {
        let y = 44 + row * 92;
        p.line("thin", [12, y - 8, 688, y - 8]);
        p.label(136, y + 32, what);
        p.rect(states[0], [50, y, 30, 28], &["a"]);
        for (name, class, x, from) in [("b", states[1], 20, 54), ("c", states[2], 84, 76)] {
            if !class.is_empty() {
                p.line("arrow", [from, y + 28, x + 15, y + 47]);
                p.rect(class, [x, y + 48, 30, 28], &[name]);
            }
        }
        p.rect("box", [330, y + 12, 160, 32], &[xored]);
        p.line("arrow", [490, y + 28, 558, y + 28]);
        p.rect(if kept == "0000" { "hot" } else { "box" }, [560, y + 12, 100, 32], &[kept]);
        p.label(560, y + 62, means);
    }
    p.finish("An ack tree whose XOR goes to zero, step by step", 408)
}

fn lease() -> (Picture, String) {
    let mut p = Picture::default();
    let at = |second: i32| 40 + second * 20;
    let bars = [(0, "insert: until 10 s"), (7, "touch: until 17 s"), (14, "touch: until 24 s")];
    for (row, (second, what)) in (0..).zip(bars) {
        let class = if row == 2 { "hot" } else { "gone" };
        p.rect(class, [at(second), 20 + row * 44, 200, 28], &[what]);
    }
    p.label(440, 30, "A touch moves the deadline,");
    p.label(440, 46, "and nothing else.");
    p.label(532, 160, "No touch in time:");
    p.label(532, 176, "the reaper ends it.");
    p.line("arrow", [at(0), 210, 690, 210]);
    for (second, top) in [(0, 48), (7, 92), (14, 136), (24, 136)] {
        p.line("thin", [at(second), top, at(second), 210]);
        p.label(at(second) - 10, 228, &format!("{second} s"));
    }
    p.rect("hot", [at(0), 240, 478, 28], &["LIVE: found, and renewed"]);
    p.rect("box", [at(24) + 2, 240, 72, 28], &["DEAD"]);
    p.rect("gone", [at(24) + 78, 240, 72, 28], &["free"]);
    p.label(at(0), 292, "The listener hears of the end once. A later touch returns false.");
    p.label(at(0), 310, "A remove ends the lease by the same swap, and only one swap succeeds.");
    p.finish("The life of a lease: insert, touches, expiry, removal", 324)
}

fn all() -> [(&'static str, (Picture, String)); 3] {
    [("entry", entry()), ("acks", acks()), ("lease", lease())]
}

fn file(name: &str) -> PathBuf {
    root().join(format!("docs/pictures/{name}.svg"))
}

/// Writes the pictures.
pub fn main() -> Result<(), String> {
    all().iter().try_for_each(|(name, (_, svg))| put(&file(name), svg.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_pictures_are_what_the_command_writes() {
        for (name, (_, svg)) in all() {
            assert!(std::fs::read_to_string(file(name)).unwrap() == svg, "cargo xtask pictures");
        }
    }

    #[test]
    fn no_label_overlaps_another_one_or_a_box_or_the_edge() {
        for (name, (Picture { boxes, labels, .. }, _)) in all() {
            for (index, label @ [left, top, right, bottom]) in labels.iter().enumerate() {
                let apart = |other: &Area| {
                    right < &other[0] || &other[2] < left || bottom < &other[1] || &other[3] < top
                };
                assert!(boxes.iter().chain(&labels[..index]).all(apart), "{name}: {label:?}");
                assert!(*left > 0 && *right < WIDTH, "{name}: {label:?}");
            }
        }
    }
}
