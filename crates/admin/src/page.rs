//! The page: files of `page/`, which the binary contains.
//!
//! `/` is the page, `/page/…` are its scripts and styles. They say nothing about the broker, so no
//! credentials are needed; all that the page shows comes from the API.
//!
//! Invariants:
//! - Only files of that directory are served, each with its own type.
//! - The page has no inline script or style; the policy of all answers (`headers`) permits none.
//! - A browser asks again each time, and gets a file once: an entity tag is the hash of the file.

use std::collections::HashMap;
use std::io::Write as _;
use std::sync::{Mutex, PoisonError};

use axum::Router;
use axum::body::Bytes;
use axum::extract::Path;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use flate2::Compression;
use flate2::write::GzEncoder;
use rust_embed::{EmbeddedFile, RustEmbed};

use crate::problem::Problem;

/// A build for development reads them when they are asked for.
#[derive(RustEmbed)]
#[folder = "page/"]
struct Files;

pub(crate) fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    let show = async |headers: HeaderMap| answer("index.html", &headers);
    let file = async |Path(path): Path<String>, headers: HeaderMap| answer(&path, &headers);
    Router::new()
        .route("/", get(show))
        .route("/page/{*path}", get(file))
}

fn answer(path: &str, headers: &HeaderMap) -> Response {
    let (Some(kind), Some(file)) = (content_type(path), Files::get(path)) else {
        let detail = format!("the page has no file {path:?}");
        return Problem::new(StatusCode::NOT_FOUND, detail).into_response();
    };
    let tag = tag(&file);
    let common = [
        (header::ETAG, tag.as_str()),
        (header::CACHE_CONTROL, "no-cache"),
        (header::VARY, "accept-encoding"),
    ];
    if has(headers, header::IF_NONE_MATCH, &tag) {
        return (StatusCode::NOT_MODIFIED, common).into_response();
    }
    let kind = [(header::CONTENT_TYPE, HeaderValue::from_static(kind))];
    if !has(headers, header::ACCEPT_ENCODING, "gzip") {
        return (common, kind, file.data.into_owned()).into_response();
    }
    let encoding = [(header::CONTENT_ENCODING, "gzip")];
    (common, kind, encoding, compressed(path, &tag, &file.data)).into_response()
}

/// Whether a header has this item in its list.
fn has(headers: &HeaderMap, name: header::HeaderName, item: &str) -> bool {
    let values = headers.get_all(name).into_iter();
    let mut items = values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','));
    items.any(|found| {
        let found = found.split(';').next().unwrap_or_default().trim();
        found.strip_prefix("W/").unwrap_or(found) == item
    })
}

fn tag(file: &EmbeddedFile) -> String {
    let hash = file.metadata.sha256_hash();
    let digits: Vec<String> = hash[..16]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("\"{}\"", digits.concat())
}

/// By the ending of its name; other files are not served. Licences go with the code of others.
fn content_type(path: &str) -> Option<&'static str> {
    if path.starts_with("vendor/LICENSE-") {
        return Some("text/plain; charset=utf-8");
    }
    let (_, ending) = path.rsplit_once('.')?;
    Some(match ending {
        "html" => "text/html; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        _ => return None,
    })
}

/// A file by gzip, made when it is first asked for. There are as many entries as files.
fn compressed(path: &str, tag: &str, data: &[u8]) -> Bytes {
    type Made = HashMap<String, (String, Bytes)>;
    static MADE: Mutex<Option<Made>> = Mutex::new(None);
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    let made = made.get_or_insert_default();
    if let Some((of, bytes)) = made.get(path)
        && of == tag
    {
        return bytes.clone();
    }
    let bytes = gzip(data);
    made.insert(path.to_owned(), (tag.to_owned(), bytes.clone()));
    bytes
}

fn gzip(data: &[u8]) -> Bytes {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    let written = encoder.write_all(data).and_then(|()| encoder.finish());
    written.expect("a vector takes all bytes").into()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;

    /// Of all files together, compressed.
    const BYTES_MAX: usize = 150 * 1000;

    fn request(headers: &[(header::HeaderName, &str)]) -> HeaderMap {
        let value = |text: &str| HeaderValue::from_str(text).expect("a header");
        let headers = headers.iter();
        headers
            .map(|(name, text)| (name.clone(), value(text)))
            .collect()
    }

    #[test]
    fn files_have_their_type_and_only_files_of_the_page_are_served() {
        for (path, kind) in [
            ("index.html", "text/html; charset=utf-8"),
            ("app.js", "text/javascript; charset=utf-8"),
            ("app.css", "text/css; charset=utf-8"),
            ("vendor/preact.js", "text/javascript; charset=utf-8"),
            ("vendor/LICENSE-preact", "text/plain; charset=utf-8"),
        ] {
            let answer = answer(path, &HeaderMap::new());
            assert_eq!(answer.status(), StatusCode::OK, "{path}");
            assert_eq!(answer.headers()[header::CONTENT_TYPE], kind, "{path}");
        }
        for path in [
            "",
            "other.js",
            "vendor/vendor.json",
            "../src/page.rs",
            "../Cargo.toml",
            "/etc/passwd",
        ] {
            let status = answer(path, &HeaderMap::new()).status();
            assert_eq!(status, StatusCode::NOT_FOUND, "{path}");
        }
    }

    #[test]
    fn a_browser_that_has_a_file_does_not_get_it_again() {
        let first = answer("app.js", &HeaderMap::new());
        let tag = first.headers()[header::ETAG].to_str().expect("text");
        for known in [tag.to_owned(), format!("\"x\", W/{tag}")] {
            let again = request(&[(header::IF_NONE_MATCH, &known)]);
            assert_eq!(answer("app.js", &again).status(), StatusCode::NOT_MODIFIED);
        }
        let other = request(&[(header::IF_NONE_MATCH, "\"x\"")]);
        assert_eq!(answer("app.js", &other).status(), StatusCode::OK);
    }

    #[test]
    fn files_are_compressed_for_those_that_can_read_it() {
        let reads = request(&[(header::ACCEPT_ENCODING, "br, gzip;q=0.8")]);
        let answered = answer("app.js", &reads);
        assert_eq!(answered.headers()[header::CONTENT_ENCODING], "gzip");
        let plain = answer("app.js", &HeaderMap::new());
        assert!(!plain.headers().contains_key(header::CONTENT_ENCODING));
        let all = Files::iter().filter(|path| content_type(path).is_some());
        let sizes = all.map(|path| gzip(&Files::get(&path).expect("listed").data).len());
        let total: usize = sizes.sum();
        assert!(total <= BYTES_MAX, "{total} bytes");
    }

    #[test]
    fn the_page_has_no_inline_script_or_style() {
        let page = Files::get("index.html").expect("the page");
        let page = str::from_utf8(&page.data).expect("text");
        assert!(!page.contains("<style") && !page.contains("style="));
        for script in page.split("<script").skip(1) {
            let (tag, rest) = script.split_once('>').expect("the end of a tag");
            assert!(tag.contains(" src=\"page/") && rest.starts_with("</script>"));
        }
    }

    /// One package of others.
    #[derive(Deserialize)]
    struct Vendored {
        name: String,
        version: String,
        licence: String,
        files: BTreeMap<String, String>,
    }

    #[test]
    fn files_of_others_are_those_of_the_lock_list() {
        let list = Files::get("vendor/vendor.json").expect("the list");
        let list: Vec<Vendored> = serde_json::from_slice(&list.data).expect("its form");
        let mut known = vec!["vendor/vendor.json".to_owned()];
        for package in &list {
            assert!(!package.version.is_empty() && !package.licence.is_empty());
            let licensed = package.files.keys().any(|file| file.starts_with("LICENSE"));
            assert!(licensed, "{} comes without its licence", package.name);
            for (file, hash) in &package.files {
                let path = format!("vendor/{file}");
                let found = Files::get(&path).unwrap_or_else(|| panic!("{path} is missing"));
                let digits = found.metadata.sha256_hash();
                let digits = digits.map(|byte| format!("{byte:02x}")).concat();
                assert_eq!(digits, *hash, "{path} is not what the list names");
                known.push(path);
            }
        }
        let vendored = Files::iter().filter(|path| path.starts_with("vendor/"));
        let unknown: Vec<_> = vendored
            .filter(|path| !known.iter().any(|known| known == path))
            .collect();
        assert!(unknown.is_empty(), "not in vendor.json: {unknown:?}");
    }
}
