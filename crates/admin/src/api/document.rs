//! The OpenAPI document: what handlers say of themselves, and what is the same for all of them.

use utoipa::openapi::path::Operation;
use utoipa::openapi::{ContentBuilder, OpenApi, Ref, RefOr, ResponseBuilder};
use utoipa::{PartialSchema as _, ToSchema as _};

use crate::problem::ProblemBody;

/// Adds the answer that every operation has for what goes wrong.
pub(super) fn complete(mut document: OpenApi) -> OpenApi {
    let components = document.components.get_or_insert_default();
    let name = ProblemBody::name().into_owned();
    components
        .schemas
        .insert(name.clone(), ProblemBody::schema());
    for item in document.paths.paths.values_mut() {
        let operations = [
            &mut item.get,
            &mut item.put,
            &mut item.post,
            &mut item.delete,
            &mut item.patch,
        ];
        for operation in operations.into_iter().flatten() {
            complete_responses(operation, &name);
        }
    }
    document
}

fn complete_responses(operation: &mut Operation, schema: &str) {
    let content = ContentBuilder::new().schema(Some(RefOr::Ref(Ref::from_schema_name(schema))));
    let problem = ResponseBuilder::new()
        .description("The request was not carried out, and why")
        .content("application/problem+json", content.build());
    let responses = &mut operation.responses.responses;
    for response in responses.values_mut() {
        if let RefOr::T(response) = response
            && response.description.is_empty()
        {
            "What was asked for".clone_into(&mut response.description); // it must have one
        }
    }
    responses.insert("default".to_owned(), RefOr::T(problem.build()));
}

#[cfg(test)]
mod tests {
    use std::{env, fs};

    use super::super::router;

    const COMMITTED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");

    /// `WRITE_OPENAPI=1 cargo test -p unbroken-admin openapi` writes it.
    #[test]
    fn the_committed_openapi_document_is_that_of_the_code() {
        let (_, document) = router();
        let mut text = document.to_pretty_json().unwrap();
        text.push('\n');
        if env::var_os("WRITE_OPENAPI").is_some() {
            fs::write(COMMITTED, &text).unwrap();
        }
        // The order of keys depends on which other crates are built.
        let read = |text: &str| serde_json::from_str::<serde_json::Value>(text).ok();
        let committed = fs::read_to_string(COMMITTED).unwrap_or_default();
        assert!(
            read(&committed) == read(&text),
            "docs/openapi.json is not what the code says; write it again with \
             WRITE_OPENAPI=1 cargo test -p unbroken-admin openapi"
        );
    }

    #[test]
    fn every_operation_has_a_summary_and_a_problem() {
        let (_, document) = router();
        let document = serde_json::to_value(&document).unwrap();
        for (path, item) in document["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                let summary = operation["summary"].as_str().unwrap_or_default();
                assert!(!summary.is_empty(), "{method} {path} has no summary");
                let problem = &operation["responses"]["default"]["content"];
                let problem = problem.get("application/problem+json");
                assert!(problem.is_some(), "{method} {path} has no problem");
            }
        }
    }
}
