//! Which public items have no example in their documentation, by what rustdoc says of a crate in JSON: re-exports are followed, and what macros
//! make is there.

use serde_json::Value;
use std::collections::HashSet;

/// Asks for an example of each type, trait, function, method, constant and alias that can be named from outside; of the methods of a trait too,
/// but not of those that implement one, nor of fields and variants.
struct Walk<'a> {
    index: &'a Value,
    seen: HashSet<String>,
    asked: usize,
    missing: Vec<String>,
}

/// How many items a crate has, and which of them have no example; `None` if this is not what rustdoc writes, or writes today.
pub fn missing(json: &Value) -> Option<(usize, Vec<String>)> {
    let mut walk = Walk {
        index: json.get("index")?,
        seen: HashSet::new(),
        asked: 0,
        missing: Vec::new(),
    };
    walk.visit(json.get("root")?, "")?;
    walk.missing.sort_unstable();
    Some((walk.asked, walk.missing))
}

impl<'a> Walk<'a> {
    /// The item of an id; `None` if it is of another crate.
    fn item(&self, id: &Value) -> Option<&'a Value> {
        let id = id.as_str().map_or_else(|| id.to_string(), String::from);
        self.index.get(id)
    }

    /// An item and what is in it; `None` if it has another form than is known.
    fn visit(&mut self, id: &Value, path: &str) -> Option<()> {
        let Some(item) = self.item(id) else {
            return Some(());
        };
        let (kind, inner) = item.get("inner")?.as_object()?.iter().next()?;
        if kind == "use" {
            return self.visit(inner.get("id")?, path);
        }
        if item.get("visibility")? != "public" || !self.seen.insert(id.to_string()) {
            return Some(());
        }
        let path = match item.get("name")?.as_str() {
            Some(name) if path.is_empty() => name.to_string(),
            Some(name) => format!("{path}::{name}"),
            None => path.to_string(),
        };
        match kind.as_str() {
            "module" => {
                let items = inner.get("items")?.as_array()?;
                return items.iter().try_for_each(|item| self.visit(item, &path));
            }
            "struct" | "enum" | "union" => {
                for block in inner.get("impls")?.as_array()? {
                    let block = self.item(block).and_then(|block| block.get("inner"));
                    let block = block.and_then(|inner| inner.get("impl"));
                    // Of others there is nothing to say that their traits do not.
                    if let Some(block) = block.filter(|block| block["trait"].is_null()) {
                        let items = block.get("items")?.as_array()?;
                        items.iter().try_for_each(|item| self.visit(item, &path))?;
                    }
                }
            }
            "trait" => {
                for method in inner.get("items")?.as_array()? {
                    if let Some(method) = self.item(method) {
                        let name = method.get("name")?.as_str()?;
                        self.ask(method, &format!("{path}::{name}"));
                    }
                }
            }
            _ => {}
        }
        self.ask(item, &path);
        Some(())
    }

    fn ask(&mut self, item: &Value, path: &str) {
        self.asked += 1;
        if !item["docs"]
            .as_str()
            .is_some_and(|docs| docs.contains("```"))
        {
            self.missing.push(path.to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_can_be_named_is_asked_for() {
        let item = |name: &str, visibility: &str, docs: &str, inner: Value| json!({ "name": name, "visibility": visibility, "docs": docs, "inner": inner });
        let shown = "So:\n```\nshown();\n```";
        let function = json!({ "function": {} });
        let json = json!({
            "root": 0,
            "index": {
                "0": item("root", "public", "", json!({ "module": { "items": [1, 2, 3, 99] } })),
                // A private module, out of which one type is re-exported.
                "1": item("inner", "crate", "", json!({ "module": { "items": [4, 5] } })),
                "2": { "name": null, "visibility": "public", "docs": null, "inner": { "use": { "id": 4 } } },
                "3": item("Trait", "public", shown, json!({ "trait": { "items": [8] } })),
                "4": item("Type", "public", shown, json!({ "struct": { "impls": [6, 10] } })),
                "5": item("Hidden", "public", "", json!({ "struct": { "impls": [] } })),
                "6": item("", "default", "", json!({ "impl": { "trait": null, "items": [7, 9] } })),
                "7": item("method", "public", "Nothing.", function.clone()),
                "8": item("provided", "default", "", function.clone()),
                "9": item("private", "default", "", function.clone()),
                "10": item("", "default", "", json!({ "impl": { "trait": { "name": "Clone" }, "items": [11] } })),
                "11": item("clone", "default", "", function),
            },
        });
        let expected = ["root::Trait::provided", "root::Type::method"].map(String::from);
        assert_eq!(missing(&json), Some((4, expected.to_vec())));
        assert_eq!(missing(&json!({ "paths": {} })), None);
    }
}
