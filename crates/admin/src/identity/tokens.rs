//! Changes of tokens: making and revoking.

use axum::http::StatusCode;

use super::accounts::check_name;
use super::book::{Book, Token};
use super::secret::{digest, new_id, new_secret};
use super::{Identity, Role, Scope, no_random};
use crate::limits::{SCOPES_MAX, TOKENS_MAX};
use crate::problem::Problem;
use crate::time::now_ms;

impl Identity {
    /// Makes one; returns it with what its holder shows.
    pub(crate) async fn add_token(
        &self,
        name: String,
        role: Role,
        scope: Vec<Scope>,
        (created_by, expires_ms): (&str, Option<i64>),
    ) -> Result<(Token, String), Problem> {
        check_name(&name)?;
        let wrong = |detail: String| Problem::new(StatusCode::UNPROCESSABLE_ENTITY, detail);
        if scope.len() > SCOPES_MAX {
            let detail = format!("a token's scope has {SCOPES_MAX} entries at most");
            return Err(wrong(detail));
        }
        let created_ms = now_ms();
        if expires_ms.is_some_and(|expires| expires <= created_ms) {
            return Err(wrong("`expires` is a time in the past".to_owned()));
        }
        let secret = format!("unb_{}", new_secret().map_err(no_random)?);
        let token = Token {
            id: new_id().map_err(no_random)?,
            name,
            role,
            scope,
            digest: digest(&secret),
            created_ms,
            created_by: created_by.to_owned(),
            expires_ms,
            last_used_ms: None,
        };
        let added = token.clone();
        let add = |book: &mut Book| {
            if book.tokens.iter().any(|it| it.name == added.name) {
                let detail = format!("there is a token {} already; revoke it first", added.name);
                return Err(Problem::new(StatusCode::CONFLICT, detail));
            }
            if book.tokens.len() >= TOKENS_MAX {
                let detail = format!("there are {TOKENS_MAX} tokens; revoke one first");
                return Err(Problem::new(StatusCode::CONFLICT, detail));
            }
            book.tokens.push(added);
            Ok(())
        };
        self.change(add).await?;
        Ok((token, secret))
    }

    /// Revokes one; returns its name.
    pub(crate) async fn remove_token(&self, id: &str) -> Result<String, Problem> {
        let of = id.to_owned();
        let remove = move |book: &mut Book| {
            let position = book.tokens.iter().position(|token| token.id == of);
            let Some(position) = position else {
                let detail = format!("there is no token with the id {of}");
                return Err(Problem::new(StatusCode::NOT_FOUND, detail));
            };
            Ok(book.tokens.remove(position).name)
        };
        self.change(remove).await
    }
}
