// SPDX-License-Identifier: MIT OR Apache-2.0
//! What programs are built against stays as it was: each function, type and constant of `libwakeful.so.1` is
//! recorded in `abi-1.txt`. `WAKEFUL_BLESS=1` adds what is new. It takes nothing away: what changes or ends
//! needs another number in `build.rs`, and a record of that name.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

const HERE: &str = env!("CARGO_MANIFEST_DIR");

/// The declarations of the header, each in one line: what a compiler makes of it, without our words.
fn declarations(header: &str) -> BTreeSet<String> {
    let constants = header.lines().filter(|line| line.starts_with("#define") && line.split(' ').count() > 2);
    let mut all: BTreeSet<String> = constants.map(String::from).collect();
    let (mut text, mut rest) = (String::new(), header);
    while let Some((code, comment)) = rest.split_once("/*") {
        text += code;
        rest = comment.split_once("*/").expect("an end of the comment").1;
    }
    text += rest;
    let code = text.lines().filter(|line| !line.starts_with('#') && !line.contains("extern \"C\""));
    let (mut depth, mut one) = (0, String::new());
    for word in code.flat_map(str::split_whitespace) {
        depth += word.matches('{').count();
        depth -= word.matches('}').count();
        one = if one.is_empty() { word.to_string() } else { format!("{one} {word}") };
        if depth == 0 && word.ends_with(';') {
            all.insert(std::mem::take(&mut one));
        }
    }
    assert_eq!(one, "", "a declaration without end");
    all
}

/// The functions among them.
fn functions(declarations: &BTreeSet<String>) -> BTreeSet<String> {
    let functions = declarations.iter().filter(|line| line.contains('(') && !line.starts_with("typedef"));
    let name = |line: &String| {
        let before = line.split('(').next().unwrap();
        before.rsplit([' ', '*']).next().unwrap().to_string()
    };
    functions.map(name).collect()
}

/// What the library exports beside functions: the table that gdb's script reads.
const DATA: &str = "WAKEFUL_FIBERS";

#[test]
fn what_was_promised_is_kept() {
    let record = Path::new(HERE).join("tests/abi-1.txt");
    let now = declarations(&fs::read_to_string(Path::new(HERE).join("include/wakeful.h")).unwrap());
    let then: BTreeSet<String> =
        fs::read_to_string(&record).unwrap_or_default().lines().map(String::from).collect();
    let gone: Vec<&String> = then.difference(&now).collect();
    assert!(
        gone.is_empty(),
        "programs that were built with libwakeful.so.1 need this, and it is not so any more: {gone:#?}\n\
         take it back, or give the library another number"
    );
    if std::env::var_os("WAKEFUL_BLESS").is_some() {
        fs::write(&record, now.iter().map(|line| format!("{line}\n")).collect::<String>()).unwrap();
    } else {
        let new: Vec<&String> = now.difference(&then).collect();
        assert!(new.is_empty(), "not recorded yet; WAKEFUL_BLESS=1 does that: {new:#?}");
    }
}

/// The library has the functions of the header under its name, and no other symbol gets into programs.
#[test]
fn the_library_exports_what_the_header_declares() {
    let folder = std::env::current_exe().unwrap().parent().unwrap().parent().unwrap().to_owned();
    let profile = folder.file_name().unwrap().to_str().unwrap();
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--package", "wakeful-capi", "--target-dir"]).arg(folder.parent().unwrap());
    build.args(["--profile", if profile == "debug" { "dev" } else { profile }]);
    assert!(build.status().unwrap().success(), "cargo build of the library failed");
    let library = folder.join("libwakeful.so");
    let say = |program: &str, words: &[&str]| {
        let said = Command::new(program).args(words).arg(&library).output();
        let said = said.unwrap_or_else(|error| panic!("{program}: {error}; the tests need binutils"));
        assert!(said.status.success(), "{program}");
        String::from_utf8(said.stdout).unwrap()
    };
    assert!(say("readelf", &["-dW"]).contains("soname: [libwakeful.so.1]"));
    let symbols = say("nm", &["-D", "--defined-only"]);
    let exported: BTreeSet<&str> =
        symbols.lines().filter_map(|line| line.split_whitespace().nth(2)).collect();
    let record = fs::read_to_string(Path::new(HERE).join("tests/abi-1.txt")).unwrap();
    let mut functions = functions(&record.lines().map(String::from).collect());
    assert!(functions.len() > 50, "{functions:?}");
    functions.insert(DATA.to_string());
    assert_eq!(exported, functions.iter().map(String::as_str).collect());
}

/// Debian's record of the same: which version of the package a program needs that asks for a symbol.
#[test]
fn the_package_s_symbols_are_the_record_s() {
    let file = Path::new(HERE).join("../../packaging/debian/libwakeful1.symbols");
    let text = fs::read_to_string(&file).unwrap_or_default();
    let record = fs::read_to_string(Path::new(HERE).join("tests/abi-1.txt")).unwrap();
    let mut functions = functions(&record.lines().map(String::from).collect());
    functions.insert(DATA.to_string());
    let line = |name: &String| {
        let begin = format!(" {name}@Base ");
        let known = text.lines().find(|line| line.starts_with(&begin)).map(String::from);
        known.unwrap_or_else(|| begin + env!("CARGO_PKG_VERSION"))
    };
    let lines: Vec<String> = functions.iter().map(line).collect();
    let expected = format!("libwakeful.so.1 libwakeful1 #MINVER#\n{}\n", lines.join("\n"));
    if std::env::var_os("WAKEFUL_BLESS").is_some() {
        fs::write(&file, &expected).unwrap();
    }
    assert_eq!(
        fs::read_to_string(&file).unwrap_or_default(),
        expected,
        "WAKEFUL_BLESS=1 makes {} again",
        file.display()
    );
}

#[test]
fn a_declaration_is_found_and_its_words_are_not() {
    let header = "#ifndef X\n#define X\n#define X_ONE 1\n/* int gone(void); */\n\
        typedef struct {\n  int a; /* b; */\n} \
        x;\n#ifdef __cplusplus\nextern \"C\" {\n#endif\nint f(x *p,\n      int (*g)(void));\n\
        #ifdef __cplusplus\n}  // extern \"C\"\n#endif\n";
    let found = declarations(header);
    let expected = ["#define X_ONE 1", "int f(x *p, int (*g)(void));", "typedef struct { int a; } x;"];
    assert!(found.iter().eq(expected), "{found:#?}");
    assert!(functions(&found).iter().eq(["f"]));
}
