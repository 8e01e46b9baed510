//! Requests that Schemathesis makes of the API's document.

use std::io::{self, Write as _};

use unbroken_acceptance::Launch;
use unbroken_acceptance::tools::{self, Tool};

use crate::http::Admin;

#[test]
fn schemathesis_finds_no_request_that_the_server_fails_for() {
    let tool = Tool::Schemathesis;
    if !tool.is_installed() {
        assert!(!tools::required(), "schemathesis is missing");
        // In the words that the test run is counted by.
        let _ = writeln!(io::stdout(), "\n1 test (1 skipped: no schemathesis)");
        return;
    }
    let admin = Admin::start(Launch::config(""));
    let url = format!("http://{}/api/v1/openapi.json", admin.address());
    let mut program = tool.program();
    program.current_dir(admin.broker.directory());
    program.args([
        "--no-color",
        "run",
        &url,
        "--checks",
        "not_a_server_error",
        "--phases",
        "examples,fuzzing",
    ]);
    program.args(["--max-examples", "20", "--generation-deterministic"]);
    program.args([
        "--suppress-health-check",
        "all",
        "--warnings",
        "off",
        "--no-shrink",
    ]);
    program.args(["--header", admin.credentials()]);
    // Answers without an end, refusals by design while there are too many, and its own token.
    program.args([
        "--exclude-path-regex",
        "/(live|events|traces)$|/tokens/|/accounts/|/demonstration",
    ]);
    let ran = program.output().expect("it is installed");
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(
        ran.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&ran.stderr)
    );
    admin.get("/node");
}
