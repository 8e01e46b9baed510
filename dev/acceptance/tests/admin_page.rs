//! The page of the admin server, as a browser asks for it.

use unbroken_acceptance::{Admin, Launch};

#[test]
fn the_page_is_open_and_runs_only_its_own_scripts() {
    let broker = Launch::config("").with_admin().start();
    let admin = Admin::stranger(&broker);
    let page = admin.get("/");
    assert_eq!(page.status, 200, "{page:?}");
    assert_eq!(
        page.header("content-type"),
        Some("text/html; charset=utf-8")
    );
    let policy = page.header("content-security-policy").expect("a policy");
    for rule in ["default-src 'self'", "frame-ancestors 'none'"] {
        assert!(policy.contains(rule), "{policy}");
    }
    assert!(!policy.contains("unsafe"), "{policy}");
    // All that it names is there.
    let named = page
        .body
        .split('"')
        .filter(|text| text.starts_with("page/"));
    let named: Vec<_> = named.map(|path| format!("/{path}")).collect();
    assert!(named.len() > 5, "{named:?}");
    for path in named {
        assert_eq!(admin.get(&path).status, 200, "{path}");
    }
}

#[test]
fn a_file_that_a_browser_has_is_not_sent_again() {
    let broker = Launch::config("").with_admin().start();
    let admin = Admin::stranger(&broker);
    let first = admin.get("/page/app.js");
    let tag = first.header("etag").expect("a tag");
    let known = format!("If-None-Match: {tag}\r\n");
    let again = admin.with_headers(&known).ask("GET", "/page/app.js", "");
    assert_eq!((again.status, &*again.body), (304, ""), "{again:?}");
}

#[test]
fn nothing_but_files_of_the_page_is_served() {
    let broker = Launch::config("").with_admin().start();
    let admin = Admin::stranger(&broker);
    for path in [
        "/page/",
        "/page/other.js",
        "/page/vendor/vendor.json",
        "/page/../Cargo.toml",
        "/page/..%2f..%2fCargo.toml",
        "/page/%2fetc%2fpasswd",
        "/page//etc/passwd",
    ] {
        let answer = admin.get(path);
        assert_eq!(answer.status, 404, "{path}: {answer:?}");
        let kind = answer.header("content-type");
        assert_eq!(kind, Some("application/problem+json"), "{path}");
    }
}
