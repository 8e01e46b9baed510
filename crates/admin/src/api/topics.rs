//! The tree of topics with retained messages, and these messages.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use unbroken_broker::handle::{
    Forget, Message, RetainedCursor, TopicLevel, WantedRetained, is_filter, is_topic,
};
use utoipa::{IntoParams, ToSchema};

use super::extract::{Query, text};
use super::listing::{Page, cursor, within, wrong_cursor};
use crate::broker::Broker;
use crate::limits::{ANSWER_TIMEOUT, CHANGE_TIMEOUT, PREVIEW_BYTES};
use crate::problem::Problem;
use crate::time;

/// Which level of the tree.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Level {
    /// The `topic` of a node, whose children are wanted; without it, the first level
    parent: Option<String>,
    /// The children of the empty first level, which topics have that begin with `/`
    #[serde(default)]
    empty_parent: bool,
    /// Topics that contain this, on all levels, instead of the children of a node
    search: Option<String>,
    /// Items of a page, 1 to 1,000
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u16>,
    /// The `next` of the page before
    cursor: Option<String>,
}

/// Which retained messages.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Search {
    /// Those whose topics match this topic filter; `#` if it is left out
    filter: Option<String>,
    /// Those whose topics contain this
    search: Option<String>,
    /// Items of a page, 1 to 1,000
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u16>,
    /// The `next` of the page before
    cursor: Option<String>,
}

/// Which value.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Which {
    /// The topic
    topic: String,
    /// The whole payload as `application/octet-stream`, instead of a description
    #[serde(default)]
    download: bool,
}

/// Which message.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Topic {
    /// The topic
    topic: String,
}

/// A node of the tree of topics
#[derive(Serialize, ToSchema)]
pub(crate) struct TopicNode {
    /// The name of its level; with `search` the whole topic
    name: String,
    /// The topic that ends here
    topic: String,
    /// Whether there are topics beneath; null with `search`
    children: Option<bool>,
    /// Whether the topic has a retained message
    retained: bool,
    /// The retained message
    value: Option<Value>,
    /// Messages in a second; always null: the broker does not count them by topic
    rate: Option<f64>,
}

/// Its bytes as they are
#[derive(ToSchema)]
#[schema(value_type = String, format = Binary)]
#[expect(dead_code, reason = "it describes bytes")]
pub(crate) struct Payload(Vec<u8>);

/// A retained message without its topic
#[derive(Serialize, ToSchema)]
pub(crate) struct Value {
    payload_bytes: usize,
    /// The first 4 KiB of the payload, if it is text
    text: Option<String>,
    /// The first 4 KiB of the payload in base64, if it is not text
    base64: Option<String>,
    /// Whether the payload goes on behind that
    is_truncated: bool,
    qos: u8,
    /// When the broker took it; of a message from before the broker started, when it was read
    #[schema(format = DateTime)]
    at: String,
    /// When its message expiry interval ends
    #[schema(format = DateTime)]
    expires: Option<String>,
    /// The client id of its publisher; null: the broker
    publisher: Option<String>,
    content_type: Option<String>,
}

/// A retained message
#[derive(Serialize, ToSchema)]
pub(crate) struct Retained {
    topic: String,
    #[serde(flatten)]
    value: Value,
}

impl Value {
    fn new(message: &Message) -> Self {
        let payload = message.payload();
        let (text, base64) = preview(payload);
        let parts = message.parts();
        Self {
            payload_bytes: payload.len(),
            text,
            base64,
            is_truncated: payload.len() > PREVIEW_BYTES,
            qos: parts.qos.into(),
            at: time::of_instant(parts.stamp),
            expires: parts.expires.map(time::of_instant),
            publisher: message.publisher().map(ToString::to_string),
            content_type: parts.properties.content_type().map(str::to_owned),
        }
    }
}

impl Retained {
    fn new(message: &Message) -> Self {
        Self {
            topic: message.topic().to_owned(),
            value: Value::new(message),
        }
    }
}

impl TopicNode {
    fn of_level(level: TopicLevel, parent: Option<&str>) -> Self {
        Self {
            topic: match parent {
                Some(parent) => format!("{parent}/{}", level.name),
                None => level.name.to_string(),
            },
            name: level.name.into(),
            children: Some(level.has_beneath),
            retained: level.message.is_some(),
            value: level.message.map(|message| Value::new(&message)),
            rate: None,
        }
    }

    fn found(message: &Message) -> Self {
        Self {
            name: message.topic().to_owned(),
            topic: message.topic().to_owned(),
            children: None,
            retained: true,
            value: Some(Value::new(message)),
            rate: None,
        }
    }
}

/// One level of the tree of topics with retained messages, or a search in all of it
#[utoipa::path(
    get, path = "/topics", tag = "topics", params(Level),
    responses((status = 200, body = Page<TopicNode>))
)]
pub(crate) async fn list(
    State(broker): State<Broker>,
    Query(level): Query<Level>,
) -> Result<Json<Page<TopicNode>>, Problem> {
    let within = within(level.limit)?;
    let search = text("search", level.search)?;
    let mut parent = text("parent", level.parent)?;
    if level.empty_parent {
        parent = Some(String::new());
    }
    let Some(search) = search else {
        let after = cursor(level.cursor.as_deref())?;
        let asked = parent.clone();
        let levels = broker
            .answer(move |handle| handle.topic_levels(asked.as_deref(), after.as_deref(), within));
        let levels = levels.await?;
        let last = levels.levels.last().map(|level| level.name.to_string());
        let next = last.filter(|_| levels.has_more);
        let nodes = levels.levels.into_iter();
        let nodes = nodes.map(|level| TopicNode::of_level(level, parent.as_deref()));
        return Ok(Json(Page::new(nodes.collect(), next)));
    };
    let wanted = WantedRetained {
        filter: parent
            .map_or_else(|| "#".to_owned(), |it| format!("{it}/#"))
            .into(),
        search: Some(search.into()),
    };
    if !is_filter(&wanted.filter) {
        return Err(Problem::bad("`parent` is no topic"));
    }
    let from = retained_cursor(level.cursor.as_deref())?;
    let found = broker.answer(move |handle| handle.retained(&wanted, from, within));
    let found = found.await?;
    let nodes = found.messages.iter().map(|it| TopicNode::found(it));
    Ok(Json(Page::new(
        nodes.collect(),
        found.next.map(cursor_text),
    )))
}

/// The retained message of a topic
#[utoipa::path(
    get, path = "/topics/value", tag = "topics", params(Which),
    responses(
        (status = 200, content(
            (Retained = "application/json"),
            (Payload = "application/octet-stream"),
        ))
    )
)]
pub(crate) async fn value(
    State(broker): State<Broker>,
    Query(which): Query<Which>,
) -> Result<Response, Problem> {
    valid_topic(&which.topic)?;
    let asked = which.topic.clone();
    let found = broker.answer(move |handle| handle.retained_message(&asked, ANSWER_TIMEOUT));
    let message = found.await?.ok_or_else(|| missing(&which.topic))?;
    if !which.download {
        return Ok(Json(Retained::new(&message)).into_response());
    }
    let headers = [
        (header::CONTENT_TYPE, "application/octet-stream"),
        (
            header::CONTENT_DISPOSITION,
            "attachment; filename=\"payload\"",
        ),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    let headers = headers.map(|(name, value)| (name, HeaderValue::from_static(value)));
    Ok((headers, message.payload().to_vec()).into_response())
}

/// Retained messages
#[utoipa::path(
    get, path = "/retained", tag = "topics", params(Search),
    responses((status = 200, body = Page<Retained>))
)]
pub(crate) async fn retained(
    State(broker): State<Broker>,
    Query(search): Query<Search>,
) -> Result<Json<Page<Retained>>, Problem> {
    let within = within(search.limit)?;
    let filter = text("filter", search.filter)?.unwrap_or_else(|| "#".to_owned());
    if !is_filter(&filter) {
        return Err(Problem::bad(format!(
            "`filter`: {filter:?} is no topic filter"
        )));
    }
    let wanted = WantedRetained {
        filter: filter.into(),
        search: text("search", search.search)?.map(Into::into),
    };
    let from = retained_cursor(search.cursor.as_deref())?;
    let found = broker.answer(move |handle| handle.retained(&wanted, from, within));
    let found = found.await?;
    let items = found.messages.iter().map(|it| Retained::new(it));
    Ok(Json(Page::new(
        items.collect(),
        found.next.map(cursor_text),
    )))
}

/// Removes the retained message of a topic
///
/// Subscribers are not told; a retained message without payload would be sent to them.
#[utoipa::path(
    delete, path = "/retained", tag = "topics", params(Topic),
    responses((status = 204, description = "It is removed, on disk too"))
)]
pub(crate) async fn remove(
    State(broker): State<Broker>,
    Query(Topic { topic }): Query<Topic>,
) -> Result<StatusCode, Problem> {
    valid_topic(&topic)?;
    let asked = topic.clone();
    let removed = broker.change(move |handle| {
        if handle.retained_message(&asked, ANSWER_TIMEOUT)?.is_none() {
            return Ok(false);
        }
        let topic = asked.into();
        handle.forget(&Forget::Retained { topic }, CHANGE_TIMEOUT)?;
        Ok(true)
    });
    if removed.await? {
        Ok(StatusCode::NO_CONTENT)
    } else {
        Err(missing(&topic))
    }
}

pub(super) fn valid_topic(topic: &str) -> Result<(), Problem> {
    if is_topic(topic) {
        return Ok(());
    }
    Err(Problem::bad(format!(
        "`topic`: {topic:?} is no topic: it has 1 to 65,535 bytes, and no `+`, `#` or NUL"
    )))
}

fn missing(topic: &str) -> Problem {
    Problem::missing(format!("the topic {topic:?} has no retained message"))
}

/// The beginning of a payload, as text if it is text.
fn preview(payload: &[u8]) -> (Option<String>, Option<String>) {
    let begin = &payload[..payload.len().min(PREVIEW_BYTES)];
    let text = match str::from_utf8(begin) {
        Ok(text) => Some(text),
        // The last letter may be cut.
        Err(error) if error.error_len().is_none() && begin.len() < payload.len() => {
            str::from_utf8(&begin[..error.valid_up_to()]).ok()
        }
        Err(_) => None,
    };
    match text.filter(|text| !text.contains('\0')) {
        Some(text) => (Some(text.to_owned()), None),
        None => (None, Some(STANDARD.encode(begin))),
    }
}

fn cursor_text(cursor: RetainedCursor) -> String {
    let RetainedCursor { shard, after } = cursor;
    match after {
        Some(after) => format!("{shard}>{after}"),
        None => shard.to_string(),
    }
}

fn retained_cursor(text: Option<&str>) -> Result<RetainedCursor, Problem> {
    let Some(text) = cursor(text)? else {
        return Ok(RetainedCursor::default());
    };
    let (shard, after) = match text.split_once('>') {
        Some((shard, after)) => (shard, Some(after.into())),
        None => (&*text, None),
    };
    let shard = shard.parse().map_err(|_| wrong_cursor())?;
    Ok(RetainedCursor { shard, after })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preview_is_text_where_it_can_be() {
        let long = "é".repeat(PREVIEW_BYTES);
        let odd = format!("x{long}");
        let (text, base64) = preview(odd.as_bytes());
        assert_eq!(
            (text.map(|text| text.len()), base64),
            (Some(PREVIEW_BYTES - 1), None)
        );
        assert_eq!(preview(b"21.5"), (Some("21.5".to_owned()), None));
        assert_eq!(preview(b"\xff\x00"), (None, Some("/wA=".to_owned())));
        assert_eq!(preview(b"a\0b"), (None, Some("YQBi".to_owned())));
        assert_eq!(
            preview("é".as_bytes().split_at(1).0),
            (None, Some("ww==".to_owned()))
        );
    }

    #[test]
    fn where_retained_messages_go_on_is_read_as_it_was_written() {
        for after in [None, Some("a/b"), Some("a>b"), Some("")] {
            let cursor = RetainedCursor {
                shard: 7,
                after: after.map(Into::into),
            };
            let text = Page::new(Vec::<u8>::new(), Some(cursor_text(cursor.clone()))).next;
            assert_eq!(retained_cursor(text.as_deref()).unwrap(), cursor);
        }
        assert!(retained_cursor(Some("eD4")).is_err());
    }
}
