//! An old question: what is the quickest way to the words of a line? Each peer reads a text line by
//! line, and splits each line at its spaces.

use std::sync::LazyLock;

use regex::Regex;

use super::{Found, Peer};

pub(super) const PEERS: &[Peer] = &[
    Peer {
        name: "split",
        note: "`str::split(' ')`, read as it is split",
        run: split,
    },
    Peer {
        name: "split-strings",
        note: "`str::split(' ')` into a new `Vec<String>` for each line, as languages do whose \
               strings own their characters",
        run: split_strings,
    },
    Peer {
        name: "split-vec",
        note: "`str::split(' ')` into a new `Vec<&str>` for each line",
        run: split_vec,
    },
    Peer {
        name: "buffer",
        note: "`memchr` into a `Vec<&str>` of the caller's, used again for each line",
        run: buffer,
    },
    Peer {
        name: "memchr",
        note: "the next space by `memchr`, read as it is found",
        run: by_memchr,
    },
    Peer {
        name: "index-of",
        note: "the next space by `str::find(' ')`",
        run: index_of,
    },
    Peer {
        name: "bytes",
        note: "a loop over bytes",
        run: bytes,
    },
    Peer {
        name: "regex",
        note: "`Regex::find_iter` of `[^ ]+`, compiled once",
        run: by_regex,
    },
];

fn add(found: &mut Found, word: &str) {
    if !word.is_empty() {
        found.add(u64::from(word.as_bytes()[0]), word.len());
    }
}

fn split(text: &str) -> Found {
    let mut found = Found::default();
    for line in text.lines() {
        for word in line.split(' ') {
            add(&mut found, word);
        }
    }
    found
}

fn split_strings(text: &str) -> Found {
    let mut found = Found::default();
    for line in text.lines() {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        for word in &words {
            add(&mut found, word);
        }
    }
    found
}

fn split_vec(text: &str) -> Found {
    let mut found = Found::default();
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        for word in &words {
            add(&mut found, word);
        }
    }
    found
}

fn buffer(text: &str) -> Found {
    let mut found = Found::default();
    let mut words = Vec::new();
    for line in text.lines() {
        words.clear();
        words_into(line, &mut words);
        for word in &words {
            add(&mut found, word);
        }
    }
    found
}

/// The words of a line, into the caller's buffer.
fn words_into<'t>(line: &'t str, words: &mut Vec<&'t str>) {
    let mut start = 0;
    for end in memchr::memchr_iter(b' ', line.as_bytes()) {
        words.push(&line[start..end]);
        start = end + 1;
    }
    words.push(&line[start..]);
}

fn by_memchr(text: &str) -> Found {
    let mut found = Found::default();
    for line in text.lines() {
        let mut left = line;
        while let Some(end) = memchr::memchr(b' ', left.as_bytes()) {
            add(&mut found, &left[..end]);
            left = &left[end + 1..];
        }
        add(&mut found, left);
    }
    found
}

fn index_of(text: &str) -> Found {
    let mut found = Found::default();
    for line in text.lines() {
        let mut left = line;
        while let Some(end) = left.find(' ') {
            add(&mut found, &left[..end]);
            left = &left[end + 1..];
        }
        add(&mut found, left);
    }
    found
}

fn bytes(text: &str) -> Found {
    let mut found = Found::default();
    for line in text.lines() {
        let mut start = 0;
        for (at, byte) in line.bytes().enumerate() {
            if byte == b' ' {
                add(&mut found, &line[start..at]);
                start = at + 1;
            }
        }
        add(&mut found, &line[start..]);
    }
    found
}

fn by_regex(text: &str) -> Found {
    static WORD: LazyLock<Regex> =
        LazyLock::new(|| Regex::new("[^ ]+").expect("the pattern is a regex"));
    let mut found = Found::default();
    for line in text.lines() {
        WORD.find_iter(line)
            .for_each(|word| add(&mut found, word.as_str()));
    }
    found
}
