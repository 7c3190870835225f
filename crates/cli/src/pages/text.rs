// SPDX-License-Identifier: MIT OR Apache-2.0
//! The pages of the repository, and what is code in them. Two tests read them: one parses each command, and
//! one runs it.

use std::path::{Path, PathBuf};

/// A block of code.
pub struct Block {
    /// What its fence says: `sh`, `text` or a language.
    pub kind: String,
    /// Its lines; one that ends with a backslash is one with the next.
    pub lines: Vec<String>,
    /// Paragraphs between it and the block before.
    #[allow(dead_code, reason = "one of the two tests asks")]
    pub gap: usize,
}

/// The blocks of a page, and what its prose has in backquotes.
pub fn code(page: &str) -> (Vec<Block>, Vec<String>) {
    let (mut blocks, mut prose, mut fenced) = (Vec::<Block>::new(), String::new(), false);
    let (mut gap, mut inside) = (0, false);
    let joined = page.replace("\\\n", "");
    for line in joined.lines() {
        if let Some(kind) = line.trim_start().strip_prefix("```") {
            if !fenced {
                blocks.push(Block { kind: kind.to_string(), lines: Vec::new(), gap });
            }
            (fenced, gap, inside) = (!fenced, 0, false);
        } else if fenced {
            blocks.last_mut().expect("a fence has begun").lines.push(line.to_string());
        } else {
            gap += usize::from(!line.is_empty() && !inside);
            inside = !line.is_empty();
            // What is quoted may go on in the next line, and ends with its paragraph.
            if line.is_empty() && prose.matches('`').count() % 2 == 1 {
                prose.push('`');
            }
            prose += line;
            prose.push(' ');
        }
    }
    (blocks, prose.split('`').skip(1).step_by(2).map(str::to_string).collect())
}

fn find(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in folder.read_dir().unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            find(&path, found);
        } else if path.extension().is_some_and(|end| end == "md") {
            found.push(path);
        }
    }
}

/// The folder of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Each page: its file and its text.
pub fn pages() -> Vec<(PathBuf, String)> {
    let mut all = ["README", "ARCHITECTURE", "CONTRIBUTING", "SECURITY", "vm/README"]
        .map(|name| root().join(name).with_extension("md"))
        .to_vec();
    find(&root().join("docs"), &mut all);
    all.into_iter().map(|path| (path.clone(), std::fs::read_to_string(path).unwrap())).collect()
}
