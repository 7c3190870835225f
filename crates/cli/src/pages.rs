// SPDX-License-Identifier: MIT OR Apache-2.0
//! Each command line of the pages names a verb and options that there are. `tests/book.rs` runs it.

use std::path::Path;

use clap::error::ErrorKind;
use clap::{Command, CommandFactory};

mod text;

/// Of a text in which backquotes or a block of a shell's lines hold commands.
fn commands(page: &str) -> Vec<String> {
    let (blocks, quoted) = text::code(page);
    let shell = blocks.into_iter().filter(|block| block.kind == "sh");
    shell.flat_map(|block| block.lines).chain(quoted).collect()
}

/// The words of each simple command in a line, without what the shell alone reads.
fn words(line: &str) -> Vec<Vec<String>> {
    let (mut all, mut word, mut quote) = (vec![Vec::new()], String::new(), None);
    for letter in line.chars().chain([' ']) {
        match (quote, letter) {
            (Some(mark), letter) if mark == letter => quote = None,
            (None, '\'' | '"') => quote = Some(letter),
            (None, ' ') if word.starts_with('#') => break,
            (None, ' ') if ["&&", "||", "|", ";", "&"].contains(&word.as_str()) => {
                all.push(Vec::new());
                word.clear();
            }
            (None, ' ') if word.is_empty() => {}
            (None, ' ') => all.last_mut().expect("one at least").push(std::mem::take(&mut word)),
            (_, letter) => word.push(letter),
        }
    }
    all
}

/// What is wrong with a line, if one of our programs would refuse it.
fn refused(line: &str) -> Option<String> {
    words(line).into_iter().find_map(|mut words| {
        // Before the program may stand who runs it, and variables.
        words.drain(..words.iter().take_while(|word| *word == "sudo" || word.contains('=')).count());
        let command = match Path::new(words.first()?).file_name()?.to_str()? {
            "wakeful" => crate::Cli::command(),
            "wakefuld" => daemon::args::Args::command(),
            _ => return None,
        };
        problem(&command, &words)
    })
}

fn problem(command: &Command, words: &[String]) -> Option<String> {
    use ErrorKind::*;
    let error = command.clone().try_get_matches_from(words).err()?;
    match error.kind() {
        // Prose names a verb or an option without all that follows it.
        DisplayHelp | DisplayVersion | DisplayHelpOnMissingArgumentOrSubcommand => None,
        MissingRequiredArgument | MissingSubcommand => None,
        InvalidValue if words.last()?.starts_with("--") => {
            problem(command, &[words, &["1".to_string()]].concat())
        }
        _ => Some(error.to_string()),
    }
}

#[test]
fn each_command_of_the_pages_is_one() {
    let (mut seen, mut bad) = (0, Vec::new());
    for (page, text) in text::pages() {
        for line in commands(&text) {
            seen += usize::from(line.contains("wakeful "));
            bad.extend(refused(&line).map(|why| format!("{}: {line}\n{why}", page.display())));
        }
    }
    assert!(bad.is_empty(), "{}", bad.join("\n"));
    assert!(seen > 60, "{seen} commands: are they written in another way now?");
}

#[test]
fn what_is_no_command_is_seen() {
    for line in [
        "wakeful ran -- ./program",
        "cd here && ./target/release/wakeful run --cpu=2 -- ./program",
        "sudo wakefuld --verbos",
        "wakeful set 12 --spare",
        "wakeful bench mutexes",
    ] {
        let page = format!("text\n\n```sh\n{line} # why\n```\n\nand `{line}`.\n");
        let refused = commands(&page).iter().filter(|line| refused(line).is_some()).count();
        // A value that is missing may be left out in prose; here the option stands last in both.
        assert_eq!(refused, if line.ends_with("--spare") { 0 } else { 2 }, "{line}");
    }
    for line in [
        "wakeful run -- ./program --cpu=2",
        "wakeful run",
        "A=1 wakeful status | grep -c x",
        "wakeful set --want-back",
    ] {
        assert_eq!(refused(line), None, "{line}");
    }
}
