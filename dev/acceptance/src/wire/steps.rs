//! A session that carries out our steps: one scenario after another.

use std::any::Any;
use std::io;
use std::panic::{self, AssertUnwindSafe};

use serde_json::Value;
use tokio::runtime::{self, Runtime};

use super::definition::{self, Definition};
use super::message::{Answer, Request};
use super::{Session, snippet};
use crate::features::{self, Pending, Scene};
use crate::server::Server;

/// The step definitions, and the scenario they act in.
#[derive(Debug)]
pub struct Steps {
    definitions: &'static [Definition],
    runtime: io::Result<Runtime>,
    /// The broker of every scenario, where it is not to start its own.
    given: Option<Server>,
    scene: Scene,
    /// Why no step of this scenario can be carried out.
    obstacle: Option<String>,
}

impl Steps {
    /// For scenarios that each start a broker, or use the given one. The first call takes time:
    /// make one before listening, because Cucumber does not wait long for its first answer.
    pub fn new(given: Option<Server>) -> Self {
        Self {
            definitions: definition::all(),
            runtime: runtime::Builder::new_current_thread().build(),
            scene: Scene::with(given.clone()),
            given,
            obstacle: None,
        }
    }

    fn begin(&mut self, tags: &[String]) -> Answer {
        self.scene = Scene::with(self.given.clone());
        self.obstacle = None;
        answer_of(|| {
            let mut missing = features::tools_named(tags).filter(|tool| !tool.is_installed());
            self.obstacle = missing.next().map(|tool| {
                let name = tool.name();
                format!("{name} is not installed: cargo xtask install-tools")
            });
        })
    }

    /// The broker of the scenario ends here, also where a step failed.
    fn end(&mut self) -> Answer {
        answer_of(|| self.scene = Scene::with(self.given.clone()))
    }

    fn matches(&self, name: &str) -> Answer {
        let matches = self.definitions.iter();
        let matches: Vec<_> = matches.filter_map(|one| one.fits(name)).collect();
        Answer::matches(&matches)
    }

    fn invoke(&mut self, id: &str, args: &[Value]) -> Answer {
        if let Some(why) = &self.obstacle {
            return Answer::pending(why);
        }
        let runtime = match &self.runtime {
            Ok(runtime) => runtime,
            Err(error) => return Answer::fail(format!("no step can be run: {error}")),
        };
        let Some(definition) = self.definitions.iter().find(|one| one.id() == id) else {
            return Answer::fail(format!("no definition is called {id:?}"));
        };
        match definition.context(args) {
            Ok(context) => {
                let step = definition.step();
                let scene = &mut self.scene;
                answer_of(|| runtime.block_on(step(scene, context)))
            }
            Err(problem) => Answer::fail(problem),
        }
    }
}

impl Session for Steps {
    fn answer(&mut self, request: &Request) -> Answer {
        match request {
            Request::StepMatches { name } => self.matches(name),
            Request::Invoke { id, args } => self.invoke(id, args),
            Request::BeginScenario { tags } => self.begin(tags),
            Request::EndScenario { .. } => self.end(),
            Request::SnippetText {
                keyword,
                name,
                under,
            } => Answer::snippet(&snippet::text(keyword, name, *under)),
            Request::DiffOk | Request::DiffFailed => {
                Answer::fail("no step has sent tables to be compared")
            }
        }
    }
}

/// A step fails by panicking, as a test does.
fn answer_of(act: impl FnOnce()) -> Answer {
    match panic::catch_unwind(AssertUnwindSafe(act)) {
        Ok(()) => Answer::success(),
        Err(payload) => answer_of_panic(&*payload),
    }
}

fn answer_of_panic(payload: &(dyn Any + Send)) -> Answer {
    if let Some(Pending(why)) = payload.downcast_ref() {
        return Answer::pending(why);
    }
    let message = payload.downcast_ref::<String>().map(String::as_str);
    let message = message.or_else(|| payload.downcast_ref::<&str>().copied());
    Answer::exception(message.unwrap_or("it panicked without a word"), "panic")
}
