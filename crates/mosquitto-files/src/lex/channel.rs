//! Tokens over a channel: batches, the sending task, and the reader that gets whole lines.
//!
//! Lexer and reader are two tasks of one thread, each as long as its own loop; the channel's
//! capacity is what keeps them in step. [`send_blocking`] is the same for a thread.

use std::future::{Future, poll_fn};
use std::ops::Deref;
use std::pin::pin;
use std::task::{Context, Poll};

use session_channels::stream::{Receiver, Sender};
use session_channels::{block_on, stream};

use super::{Kind, Lexer, Token};
use crate::bounds::{BATCHES_IN_FLIGHT, TOKENS_PER_BATCH, WORDS_PER_LINE_MAX};

/// Tokens that cross the channel as one message.
#[derive(Clone, Debug)]
pub struct Batch {
    tokens: [Token; TOKENS_PER_BATCH],
    length: u16,
}

impl Batch {
    /// The lexer's next tokens, as many as there is room for; empty behind the last.
    fn next(lexer: &mut Lexer<'_>) -> Self {
        let mut batch = Self {
            tokens: [Token::default(); TOKENS_PER_BATCH],
            length: 0,
        };
        for (place, token) in batch.tokens.iter_mut().zip(lexer) {
            *place = token;
            batch.length += 1;
        }
        batch
    }
}

impl Deref for Batch {
    type Target = [Token];

    fn deref(&self) -> &[Token] {
        &self.tokens[..usize::from(self.length)]
    }
}

/// Sends all tokens; ends early when the receiver is gone.
pub async fn send(mut lexer: Lexer<'_>, mut sender: Sender<Batch>) {
    loop {
        let batch = Batch::next(&mut lexer);
        if batch.is_empty() || sender.send(batch).await.is_err() {
            return;
        }
    }
}

/// As [`send`]; the thread waits while the channel is full.
pub fn send_blocking(mut lexer: Lexer<'_>, mut sender: Sender<Batch>) {
    loop {
        let batch = Batch::next(&mut lexer);
        if batch.is_empty() || sender.send_blocking(batch).is_err() {
            return;
        }
    }
}

/// The tokens of one line, without its end.
#[derive(Debug, Default)]
pub(crate) struct Line {
    pub(crate) tokens: Vec<Token>,
    /// It has more words than a line may have; these are not among the tokens.
    pub(crate) is_too_long: bool,
}

/// Runs a lexer, and gives each line that has tokens to `take`.
pub(crate) fn each_line(lexer: Lexer<'_>, mut take: impl FnMut(&Line)) {
    let mut line = Line::default();
    each_batch(lexer, |batch| {
        for token in batch {
            if token.kind == Kind::End {
                take(&line);
                line.tokens.clear();
                line.is_too_long = false;
            } else if line.tokens.len() > WORDS_PER_LINE_MAX {
                line.is_too_long = true;
            } else {
                line.tokens.push(*token);
            }
        }
    });
}

/// Runs a lexer and `take`, which gets its tokens, as two tasks of this thread.
pub fn each_batch(lexer: Lexer<'_>, take: impl FnMut(&[Token])) {
    let (sender, receiver) = stream(BATCHES_IN_FLIGHT);
    block_on(both(send(lexer, sender), receive(receiver, take)));
}

async fn receive(mut receiver: Receiver<Batch>, mut take: impl FnMut(&[Token])) {
    // An error says that the lexer has ended.
    while let Ok(batch) = receiver.recv().await {
        take(&batch);
    }
}

/// Runs two tasks until both have ended.
async fn both(one: impl Future<Output = ()>, other: impl Future<Output = ()>) {
    let (mut one, mut other) = (pin!(one), pin!(other));
    let (mut one_ended, mut other_ended) = (false, false);
    poll_fn(move |context: &mut Context<'_>| {
        one_ended = one_ended || one.as_mut().poll(context).is_ready();
        other_ended = other_ended || other.as_mut().poll(context).is_ready();
        if one_ended && other_ended {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// More tokens than the channel has room for.
    fn long_text() -> Vec<u8> {
        let lines = TOKENS_PER_BATCH * BATCHES_IN_FLIGHT as usize;
        b"key one two three\n".repeat(lines)
    }

    #[test]
    fn what_crosses_the_channel_is_what_is_pulled() {
        let text = long_text();
        let pulled: Vec<_> = Lexer::conf(&text).collect();
        let mut by_task = Vec::new();
        each_line(Lexer::conf(&text), |line| {
            by_task.extend_from_slice(&line.tokens);
        });
        let without_ends = pulled.iter().filter(|token| token.kind != Kind::End);
        assert!(without_ends.eq(&by_task));

        let (sender, mut receiver) = stream(BATCHES_IN_FLIGHT);
        let mut by_thread = Vec::new();
        std::thread::scope(|scope| {
            scope.spawn(|| send_blocking(Lexer::conf(&text), sender));
            while let Ok(batch) = receiver.recv_blocking() {
                by_thread.extend_from_slice(&batch);
            }
        });
        assert_eq!(by_thread, pulled);
    }

    #[test]
    fn a_lexer_without_a_receiver_ends() {
        let text = long_text();
        let (sender, receiver) = stream(1);
        drop(receiver);
        send_blocking(Lexer::conf(&text), sender);
    }

    #[test]
    fn words_beyond_the_limit_are_not_gathered() {
        let mut text = b"key ".to_vec();
        text.extend(b"w ".repeat(WORDS_PER_LINE_MAX + 5));
        text.extend(b"\nkey");
        let mut lengths = Vec::new();
        each_line(Lexer::conf(&text), |line| {
            lengths.push((line.tokens.len(), line.is_too_long));
        });
        assert_eq!(lengths, [(WORDS_PER_LINE_MAX + 1, true), (1, false)]);
    }
}
