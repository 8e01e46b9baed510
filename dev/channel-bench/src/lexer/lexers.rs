//! Lexers of `mosquitto.conf`, all with the same tokens: the key of a line, its further words, and
//! its end.

use std::thread;

use logos::Logos;
use session_channels::stream;
use unbroken_mosquitto_files::bounds::{BATCHES_IN_FLIGHT, TOKENS_PER_BATCH};
use unbroken_mosquitto_files::lex::{Kind, Lexer, Token, each_batch, send_blocking};

use super::{Found, Peer};

pub(super) const PEERS: &[Peer] = &[
    Peer {
        name: "channel",
        note: "state functions; batches of tokens over a channel between two tasks of one thread: \
               what our readers stand on",
        run: channel,
    },
    Peer {
        name: "channel-thread",
        note: "the same, with the lexer in a thread that is started for the text",
        run: channel_thread,
    },
    Peer {
        name: "token-thread",
        note: "the same, with a message for each token",
        run: token_thread,
    },
    Peer {
        name: "pull",
        note: "the same state functions, pulled token by token through `Iterator`",
        run: pull,
    },
    Peer {
        name: "vec",
        note: "pulled into a `Vec` of all tokens, which is read afterwards",
        run: all_first,
    },
    Peer {
        name: "logos",
        note: "the automaton that `logos` derives from patterns, pulled token by token",
        run: by_logos,
    },
];

fn add(found: &mut Found, token: Token) {
    found.add(token.kind as u64, (token.end - token.start) as usize);
}

fn channel(text: &str) -> Found {
    let mut found = Found::default();
    each_batch(Lexer::conf(text.as_bytes()), |tokens| {
        for token in tokens {
            add(&mut found, *token);
        }
    });
    found
}

fn channel_thread(text: &str) -> Found {
    let mut found = Found::default();
    let (sender, mut receiver) = stream(BATCHES_IN_FLIGHT);
    thread::scope(|scope| {
        scope.spawn(move || send_blocking(Lexer::conf(text.as_bytes()), sender));
        while let Ok(batch) = receiver.recv_blocking() {
            for token in &*batch {
                add(&mut found, *token);
            }
        }
    });
    found
}

fn token_thread(text: &str) -> Found {
    // As many as in batches.
    const TOKENS_IN_FLIGHT: u32 = 512;
    const _: () =
        assert!(TOKENS_IN_FLIGHT as usize == BATCHES_IN_FLIGHT as usize * TOKENS_PER_BATCH);
    let mut found = Found::default();
    let (mut sender, mut receiver) = stream(TOKENS_IN_FLIGHT);
    thread::scope(|scope| {
        scope.spawn(move || {
            for token in Lexer::conf(text.as_bytes()) {
                if sender.send_blocking(token).is_err() {
                    return;
                }
            }
        });
        while let Ok(token) = receiver.recv_blocking() {
            add(&mut found, token);
        }
    });
    found
}

fn pull(text: &str) -> Found {
    let mut found = Found::default();
    Lexer::conf(text.as_bytes()).for_each(|token| add(&mut found, token));
    found
}

fn all_first(text: &str) -> Found {
    let mut found = Found::default();
    let tokens: Vec<_> = Lexer::conf(text.as_bytes()).collect();
    for token in &tokens {
        add(&mut found, *token);
    }
    found
}

/// What the patterns can tell apart. A comment is recognised by the line's end before it, as
/// there is no pattern for the start of a line; so a text that begins with a comment is not read
/// right.
#[derive(Logos, Clone, Copy, Debug, PartialEq, Eq)]
#[logos(skip r" +")]
enum Piece {
    #[regex(r"(\n#[^\n]*)*\n")]
    LineEnd,
    #[regex(r"[^ \n]+")]
    Word,
}

fn by_logos(text: &str) -> Found {
    let mut found = Found::default();
    let mut lexer = Piece::lexer(text);
    let mut is_in_line = false;
    while let Some(piece) = lexer.next() {
        match piece {
            Ok(Piece::Word) => {
                let kind = if is_in_line { Kind::Word } else { Kind::Key };
                found.add(kind as u64, lexer.slice().len());
                is_in_line = true;
            }
            Ok(Piece::LineEnd) if is_in_line => {
                found.add(Kind::End as u64, 0);
                is_in_line = false;
            }
            _ => {}
        }
    }
    found
}
