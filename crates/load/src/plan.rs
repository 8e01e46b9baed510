//! From a scenario to who connects, who subscribes to what, and who publishes how much ahead of
//! whom.
//!
//! A plan is data: clients, and *flows*, each one numbered stream of messages with known receivers.
//! One rule covers all closed loops: a publisher spends `cost` credits on a message and earns one
//! for each delivery that its flow counts. A window is credits at the start; a request/reply pair
//! is one credit that travels between two publishers.
//!
//! Invariants: every message of a flow goes to the same receivers, so a lost one is known by its
//! number; a client's lanes are consecutive flows; the flow numbers of all workers together are
//! unique. Deliberately absent: sockets and time.

use std::ops::Range;

/// What the connections do. The numbers are those of the whole run, whatever the number of threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scenario {
    /// Half of the connections publish, half subscribe, one topic a pair.
    Pairs {
        /// Connections; an odd one is left out.
        connections: u32,
    },
    /// Request/reply pairs, one message under way in each; listeners with a wildcard hear all of
    /// the first pair.
    Ping {
        /// Pairs of a requester and a replier.
        pairs: u32,
        /// Subscribers with a wildcard on the first pair.
        listeners: u32,
    },
    /// Many publishers, one subscriber.
    FanIn {
        /// Publishers.
        publishers: u32,
    },
    /// One publisher, many subscribers.
    FanOut {
        /// Subscribers.
        subscribers: u32,
    },
    /// Many filters with `+` and `#`; every message matches two subscribers.
    Tree {
        /// Subscribers; an odd one is left out.
        subscribers: u32,
        /// Filters in all.
        filters: u32,
        /// Publishers.
        publishers: u32,
    },
    /// Connections that subscribe to one topic each and then stay silent.
    Idle {
        /// Connections.
        connections: u32,
    },
}

impl Scenario {
    /// The name on the command line and in records.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pairs { .. } => "pairs",
            Self::Ping { .. } => "ping",
            Self::FanIn { .. } => "fan-in",
            Self::FanOut { .. } => "fan-out",
            Self::Tree { .. } => "tree",
            Self::Idle { .. } => "idle",
        }
    }

    /// How many connections the whole run opens.
    pub const fn connections(self) -> u32 {
        match self {
            Self::Pairs { connections } => connections / 2 * 2,
            Self::Ping { pairs, listeners } => pairs * 2 + listeners,
            Self::FanIn { publishers } => publishers + 1,
            Self::FanOut { subscribers } => subscribers + 1,
            Self::Tree {
                subscribers,
                publishers,
                ..
            } => subscribers / 2 * 2 + publishers,
            Self::Idle { connections } => connections,
        }
    }

    /// Into how many independent parts it can be cut at most, one for each thread.
    pub const fn parts(self) -> u32 {
        match self {
            Self::Pairs { connections } => connections / 2,
            Self::Ping { pairs, .. } => pairs,
            Self::Idle { connections } => connections,
            Self::FanIn { .. } | Self::FanOut { .. } | Self::Tree { .. } => 1,
        }
    }

    /// Whether each publisher repeats one topic, so that several messages can share a write.
    pub(crate) const fn repeats_topic(self) -> bool {
        !matches!(self, Self::Tree { .. } | Self::Ping { .. })
    }
}

/// One connection.
#[derive(Debug, Default)]
pub(crate) struct Client {
    pub(crate) id: String,
    pub(crate) filters: Vec<String>,
    /// The flows it must receive, in full.
    pub(crate) lanes: Range<u32>,
    /// Whether its deliveries earn credit for the flow's [`Flow::earner`].
    pub(crate) counts: bool,
    /// Whether its deliveries are timed.
    pub(crate) timed: bool,
    pub(crate) publisher: Option<Publisher>,
}

/// What a connection publishes.
#[derive(Debug)]
pub(crate) struct Publisher {
    /// Taken in turn, starting at a place of its own so that publishers do not march in step.
    pub(crate) flows: Vec<u32>,
    pub(crate) credit: u64,
    pub(crate) cost: u64,
    /// Answers what it receives, with the time of the question, rather than starting by itself.
    pub(crate) replies: bool,
}

/// One numbered stream of messages.
#[derive(Debug)]
pub(crate) struct Flow {
    /// Which of the plan's topics it uses, in turn.
    pub(crate) topics: Range<usize>,
    /// How many clients get each message.
    pub(crate) receivers: u32,
    /// The client whose credit grows by a delivery.
    pub(crate) earner: usize,
}

/// One worker's part of a scenario.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) clients: Vec<Client>,
    /// Number of the first of `flows`.
    pub(crate) first_flow: u32,
    pub(crate) flows: Vec<Flow>,
    pub(crate) topics: Vec<String>,
}

impl Plan {
    /// The part of worker `worker` of `workers`. `prefix` keeps runs on one broker apart.
    pub(crate) fn new(
        scenario: Scenario,
        prefix: &str,
        window: u32,
        (worker, workers): (u32, u32),
    ) -> Self {
        let builder = Builder {
            plan: Self::default(),
            prefix,
            window: u64::from(window),
        };
        let part = share(scenario.parts(), worker, workers);
        match scenario {
            Scenario::Pairs { .. } => builder.pairs(part),
            Scenario::Ping { listeners, .. } => builder.ping(part, listeners),
            Scenario::FanIn { publishers } => builder.fan_in(publishers),
            Scenario::FanOut { subscribers } => builder.fan_out(subscribers),
            Scenario::Tree {
                subscribers,
                filters,
                publishers,
            } => builder.tree(subscribers / 2, filters / subscribers.max(1), publishers),
            Scenario::Idle { .. } => builder.idle(part),
        }
    }
}

/// The `worker`-th of `workers` nearly equal parts of `0..total`.
fn share(total: u32, worker: u32, workers: u32) -> Range<u32> {
    let cut = |at: u32| {
        let product = u64::from(total) * u64::from(at) / u64::from(workers.max(1));
        u32::try_from(product).unwrap_or(total)
    };
    cut(worker)..cut(worker + 1)
}

struct Builder<'a> {
    plan: Plan,
    prefix: &'a str,
    window: u64,
}

impl Builder<'_> {
    fn pairs(mut self, pairs: Range<u32>) -> Plan {
        self.plan.first_flow = pairs.start;
        for pair in pairs {
            let topic = format!("{}/{pair}", self.prefix);
            let publisher = self.publisher(format!("p{pair}"), vec![pair], 1);
            self.subscriber(format!("s{pair}"), vec![topic.clone()], pair..pair + 1);
            self.flow(topic, 1, publisher);
        }
        self.plan
    }

    fn ping(mut self, pairs: Range<u32>, listeners: u32) -> Plan {
        self.plan.first_flow = pairs.start * 2;
        let first = pairs.start;
        for pair in pairs {
            let (request, reply) = (pair * 2, pair * 2 + 1);
            let [asked, answered] =
                ["request", "reply"].map(|part| format!("{}/{pair}/{part}", self.prefix));
            let requester = self.plan.clients.len();
            let replier = requester + 1;
            self.plan.clients.push(Client {
                id: self.client_id(&format!("q{pair}")),
                filters: vec![answered.clone()],
                lanes: reply..reply + 1,
                counts: true,
                timed: true,
                publisher: Some(Publisher {
                    flows: vec![request],
                    credit: 1,
                    cost: 1,
                    replies: false,
                }),
            });
            self.plan.clients.push(Client {
                id: self.client_id(&format!("a{pair}")),
                filters: vec![asked.clone()],
                lanes: request..request + 1,
                counts: true,
                timed: false,
                publisher: Some(Publisher {
                    flows: vec![reply],
                    credit: 0,
                    cost: 1,
                    replies: true,
                }),
            });
            let receivers = if pair == 0 { 1 + listeners } else { 1 };
            self.flow(asked, receivers, replier);
            self.flow(answered, receivers, requester);
        }
        if first == 0 {
            for listener in 0..listeners {
                self.plan.clients.push(Client {
                    id: self.client_id(&format!("w{listener}")),
                    filters: vec![format!("{}/0/#", self.prefix)],
                    lanes: 0..2,
                    ..Client::default()
                });
            }
        }
        self.plan
    }

    fn fan_in(mut self, publishers: u32) -> Plan {
        let filter = format!("{}/+", self.prefix);
        self.subscriber("s".to_owned(), vec![filter], 0..publishers);
        for number in 0..publishers {
            let publisher = self.publisher(format!("p{number}"), vec![number], 1);
            self.flow(format!("{}/{number}", self.prefix), 1, publisher);
        }
        self.plan
    }

    fn fan_out(mut self, subscribers: u32) -> Plan {
        let topic = format!("{}/all", self.prefix);
        for number in 0..subscribers {
            self.subscriber(format!("s{number}"), vec![topic.clone()], 0..1);
        }
        let publisher = self.publisher("p".to_owned(), vec![0], subscribers);
        self.flow(topic, subscribers, publisher);
        self.plan
    }

    /// Two subscribers form a group that hears the same topics, one by filters with `+`, one by
    /// filters with `#`.
    fn tree(mut self, groups: u32, topics_per_group: u32, publishers: u32) -> Plan {
        for group in 0..groups {
            let prefix = self.prefix;
            let each = |build: &dyn Fn(u32) -> String| (0..topics_per_group).map(build).collect();
            let topics: Vec<String> =
                each(&|topic| format!("{prefix}/g{group}/{group}-{topic}/now"));
            // Wildcards stand at different depths, so that the broker's search really branches.
            let plus = each(&|topic| match topic % 3 {
                0 => format!("{prefix}/g{group}/{group}-{topic}/+"),
                1 => format!("{prefix}/+/{group}-{topic}/now"),
                _ => format!("{prefix}/+/{group}-{topic}/+"),
            });
            let hash = each(&|topic| format!("{prefix}/g{group}/{group}-{topic}/#"));
            let lanes = group * publishers..(group + 1) * publishers;
            self.subscriber(format!("s{group}a"), plus, lanes.clone());
            self.subscriber(format!("s{group}b"), hash, lanes);
            let at = self.plan.topics.len();
            for publisher in 0..publishers {
                let earner = (groups * 2 + publisher) as usize;
                let topics = at..at + topics.len();
                self.plan.flows.push(Flow {
                    topics,
                    receivers: 2,
                    earner,
                });
            }
            self.plan.topics.extend(topics);
        }
        for publisher in 0..publishers {
            let flows = (0..groups).map(|group| group * publishers + publisher);
            let mut flows: Vec<_> = flows.collect();
            flows.rotate_left((groups * publisher / publishers) as usize);
            self.publisher(format!("p{publisher}"), flows, 2);
        }
        self.plan
    }

    fn idle(mut self, connections: Range<u32>) -> Plan {
        for number in connections {
            let filter = format!("{}/{number}", self.prefix);
            self.subscriber(format!("i{number}"), vec![filter], 0..0);
        }
        self.plan
    }

    fn client_id(&self, role: &str) -> String {
        format!("{}-{role}", self.prefix.replace('/', "-"))
    }

    fn subscriber(&mut self, role: String, filters: Vec<String>, lanes: Range<u32>) {
        let id = self.client_id(&role);
        let client = Client {
            id,
            filters,
            lanes,
            counts: true,
            timed: true,
            publisher: None,
        };
        self.plan.clients.push(client);
    }

    fn publisher(&mut self, role: String, flows: Vec<u32>, receivers: u32) -> usize {
        let cost = u64::from(receivers);
        let publisher = Publisher {
            flows,
            credit: self.window * cost,
            cost,
            replies: false,
        };
        let id = self.client_id(&role);
        self.plan.clients.push(Client {
            id,
            publisher: Some(publisher),
            ..Client::default()
        });
        self.plan.clients.len() - 1
    }

    fn flow(&mut self, topic: String, receivers: u32, earner: usize) {
        let at = self.plan.topics.len();
        self.plan.topics.push(topic);
        self.plan.flows.push(Flow {
            topics: at..at + 1,
            receivers,
            earner,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each flow's receivers, counted by who claims the lane.
    fn claims(plan: &Plan) -> Vec<u32> {
        let mut claims = vec![0; plan.flows.len()];
        for lane in plan.clients.iter().flat_map(|client| client.lanes.clone()) {
            claims[(lane - plan.first_flow) as usize] += 1;
        }
        claims
    }

    fn scenarios() -> [Scenario; 5] {
        [
            Scenario::Pairs { connections: 10 },
            Scenario::Ping {
                pairs: 5,
                listeners: 3,
            },
            Scenario::FanIn { publishers: 7 },
            Scenario::FanOut { subscribers: 7 },
            Scenario::Tree {
                subscribers: 6,
                filters: 60,
                publishers: 4,
            },
        ]
    }

    #[test]
    fn every_flow_has_as_many_receivers_as_it_says() {
        for scenario in scenarios() {
            let plan = Plan::new(scenario, "x", 10, (0, 1));
            let said: Vec<_> = plan.flows.iter().map(|flow| flow.receivers).collect();
            assert_eq!(claims(&plan), said, "{scenario:?}");
            assert_eq!(plan.clients.len(), scenario.connections() as usize);
        }
    }

    #[test]
    fn every_flow_has_one_publisher_and_only_publishers_earn() {
        for scenario in scenarios() {
            let plan = Plan::new(scenario, "x", 10, (0, 1));
            let mut flows: Vec<_> = plan
                .clients
                .iter()
                .filter_map(|client| client.publisher.as_ref())
                .flat_map(|publisher| publisher.flows.clone())
                .collect();
            flows.sort_unstable();
            let all: Vec<_> = (0..u32::try_from(plan.flows.len()).unwrap()).collect();
            assert_eq!(flows, all, "{scenario:?}");
            assert!(
                plan.flows
                    .iter()
                    .all(|flow| plan.clients[flow.earner].publisher.is_some())
            );
        }
    }

    #[test]
    fn parts_of_workers_add_up_without_overlap() {
        let scenario = Scenario::Ping {
            pairs: 5,
            listeners: 3,
        };
        let parts: Vec<_> = (0..3)
            .map(|worker| Plan::new(scenario, "x", 1, (worker, 3)))
            .collect();
        let clients: usize = parts.iter().map(|part| part.clients.len()).sum();
        assert_eq!(clients, 13);
        let mut next = 0;
        for part in &parts {
            assert_eq!(part.first_flow, next);
            next += u32::try_from(part.flows.len()).unwrap();
        }
        assert_eq!(next, 10);
    }

    #[test]
    fn client_ids_differ() {
        for scenario in scenarios() {
            let plan = Plan::new(scenario, "x/y", 10, (0, 1));
            let ids: std::collections::HashSet<_> =
                plan.clients.iter().map(|client| &client.id).collect();
            assert_eq!(ids.len(), plan.clients.len());
        }
    }
}
