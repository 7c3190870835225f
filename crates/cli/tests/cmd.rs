// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the command says and how it ends: the cases are in `tests/cmd`.
//!
//! The interposer is another crate's business, so that a shared library which does nothing stands in for it.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::Command;

fn compile(folder: &Path, output: &str, source: &str, options: &[&str]) {
    let file = folder.join(format!("{output}.c"));
    fs::write(&file, source).unwrap();
    let compiled = Command::new("cc").args(options).arg("-o").arg(folder.join(output)).arg(&file).status();
    assert!(compiled.expect("a C compiler, as linking Rust needs one").success(), "{output}");
}

fn script(folder: &Path, name: &str, text: &str, mode: u32) {
    fs::write(folder.join(name), text).unwrap();
    fs::set_permissions(folder.join(name), Permissions::from_mode(mode)).unwrap();
}

/// A program with a set-user-ID bit that is not ours: made if we can make it, else one that every system has.
fn set_user_id(folder: &Path) {
    const NOBODY: u32 = 65534;
    let program = folder.join("set-user-id");
    fs::copy(folder.join("dynamic"), &program).unwrap();
    if chown(&program, Some(NOBODY), None).is_ok() {
        fs::set_permissions(&program, Permissions::from_mode(0o4755)).unwrap();
    } else {
        fs::remove_file(&program).unwrap();
        let su = ["/bin/su", "/usr/bin/su"].into_iter().find(|path| Path::new(path).exists());
        symlink(su.expect("su"), program).unwrap();
    }
}

#[test]
fn cases() {
    // Not in the machine's folder for temporary files: that may be mounted so that the set-user-ID bit means nothing.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let at = folder.path();
    compile(at, "libstand-in.so", "int wakeful_stand_in;", &["-shared", "-fPIC"]);
    compile(
        at,
        "dynamic",
        "#include <stdio.h>\n#include <stdlib.h>\nint main() {\n\
         const char *p = getenv(\"LD_PRELOAD\");\n\
         printf(\"%s\\n\", p && *p ? \"preloaded\" : \"plain\"); }",
        &[],
    );
    compile(at, "static", "#include <stdio.h>\nint main() { puts(\"static\"); return 4; }", &["-static"]);
    set_user_id(at);
    script(at, "no-interpreter", "#!/no/such/interpreter\n", 0o755);
    script(at, "no-hash-bang", "echo from the shell\n", 0o755);
    script(at, "not-executable", "", 0o644);
    fs::create_dir(at.join("folder")).unwrap();

    symlink(env!("CARGO_BIN_EXE_wakeful"), at.join("wakeful")).unwrap();

    let path = std::env::var("PATH").unwrap_or_default();
    let cases = trycmd::TestCases::new();
    cases
        .env("PATH", format!("{}:{path}", at.display()))
        .env("WAKEFUL_PRELOAD", at.join("libstand-in.so").display().to_string())
        .env("LD_PRELOAD", "")
        .env("RUST_BACKTRACE", "0")
        .case("tests/cmd/*.toml");
    cases.insert_var("[FIXTURES]", at.display().to_string()).unwrap();
    cases.run();
}

#[test]
fn without_the_interposer() {
    trycmd::TestCases::new().env("WAKEFUL_PRELOAD", "/no/such/library.so").case("tests/cmd/without/*.toml");
}
