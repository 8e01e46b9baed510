//! Changes of accounts: adding, role, password, removal.

use axum::http::StatusCode;

use super::book::Account;
use super::{Identity, Role};
use crate::limits::{ACCOUNTS_MAX, NAME_BYTES_MAX, PASSWORD_BYTES_MAX, PASSWORD_CHARS_MIN};
use crate::problem::Problem;
use crate::time::now_ms;

/// What changes; `None`: stays.
#[derive(Debug, Default)]
pub(crate) struct AccountChange {
    pub(crate) role: Option<Role>,
    pub(crate) password: Option<String>,
}

impl Identity {
    pub(crate) async fn add_account(
        &self,
        name: String,
        role: Role,
        password: String,
    ) -> Result<Account, Problem> {
        check_name(&name)?;
        check_password(&password)?;
        let account = Account {
            role,
            password: self.hash(password).await?,
            created_ms: now_ms(),
            name,
        };
        let added = account.clone();
        let add = |book: &mut super::book::Book| {
            if book.account(&added.name).is_some() {
                let detail = format!("there is an account {} already", added.name);
                return Err(Problem::new(StatusCode::CONFLICT, detail));
            }
            if book.accounts.len() >= ACCOUNTS_MAX {
                let detail = format!("there are {ACCOUNTS_MAX} accounts; remove one first");
                return Err(Problem::new(StatusCode::CONFLICT, detail));
            }
            book.accounts.push(added);
            book.accounts.sort_by(|a, b| a.name.cmp(&b.name));
            Ok(())
        };
        self.change(add).await?;
        self.0.link.end();
        Ok(account)
    }

    /// A new password ends the account's sessions.
    pub(crate) async fn change_account(
        &self,
        name: &str,
        AccountChange { role, password }: AccountChange,
    ) -> Result<Account, Problem> {
        let hash = match password {
            Some(password) => {
                check_password(&password)?;
                Some(self.hash(password).await?)
            }
            None => None,
        };
        let has_new_password = hash.is_some();
        let of = name.to_owned();
        let change = move |book: &mut super::book::Book| {
            if role.is_some_and(|role| role < Role::Admin) && book.is_last_admin(&of) {
                return Err(last_admin(&of));
            }
            let mut accounts = book.accounts.iter_mut();
            let account = accounts.find(|it| it.name == of);
            let account = account.ok_or_else(|| unknown(&of))?;
            account.role = role.unwrap_or(account.role);
            if let Some(hash) = hash {
                account.password = hash;
            }
            Ok(account.clone())
        };
        let account = self.change(change).await?;
        if has_new_password {
            self.0.sessions.end_of(name);
        }
        Ok(account)
    }

    /// Ends its sessions too. The last admin is removed only where `may_be_last`: at the unix
    /// socket, where a new link can be made.
    pub(crate) async fn remove_account(
        &self,
        name: &str,
        may_be_last: bool,
    ) -> Result<(), Problem> {
        let of = name.to_owned();
        let remove = move |book: &mut super::book::Book| {
            if book.account(&of).is_none() {
                return Err(unknown(&of));
            }
            if !may_be_last && book.is_last_admin(&of) {
                return Err(last_admin(&of));
            }
            book.accounts.retain(|account| account.name != of);
            Ok(())
        };
        self.change(remove).await?;
        self.0.sessions.end_of(name);
        Ok(())
    }
}

fn unknown(name: &str) -> Problem {
    Problem::new(StatusCode::NOT_FOUND, format!("there is no account {name}"))
}

fn last_admin(name: &str) -> Problem {
    let detail = format!(
        "{name} is the only account with the role admin: give another account the role first"
    );
    Problem::new(StatusCode::CONFLICT, detail)
}

/// Of an account or token. Without `:`, which marks the names of other callers.
pub(super) fn check_name(name: &str) -> Result<(), Problem> {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"._@-".contains(&byte);
    if (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_letter) {
        return Ok(());
    }
    let detail = format!("a name has 1 to {NAME_BYTES_MAX} of the characters A-Z a-z 0-9 . _ @ -");
    Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, detail))
}

pub(super) fn check_password(password: &str) -> Result<(), Problem> {
    let is_long = password.chars().nth(PASSWORD_CHARS_MIN - 1).is_some();
    if is_long && password.len() <= PASSWORD_BYTES_MAX {
        return Ok(());
    }
    let detail = format!(
        "a password has at least {PASSWORD_CHARS_MIN} characters, and {PASSWORD_BYTES_MAX} bytes at \
         most"
    );
    Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, detail))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_passwords_have_limits() {
        for name in ["a", "ann", "Ann.B@example-1_2", &"x".repeat(NAME_BYTES_MAX)] {
            assert!(check_name(name).is_ok(), "{name}");
        }
        for name in [
            "",
            "a:b",
            "a b",
            "ä",
            "a/b",
            &"x".repeat(NAME_BYTES_MAX + 1),
        ] {
            assert!(check_name(name).is_err(), "{name}");
        }
        for (password, is_right) in [
            ("1234567", false),
            ("12345678", true),
            ("ääääääää", true),
            ("äääää", false),
            (&*"x".repeat(PASSWORD_BYTES_MAX + 1), false),
        ] {
            assert_eq!(check_password(password).is_ok(), is_right, "{password}");
        }
    }
}
