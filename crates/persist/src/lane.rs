//! Lanes in the store's bytes.

use std::sync::Arc;
use std::time::Duration;

use unbroken_broker_core::{LaneState, LaneTold, LaneUser};
use unbroken_store::lane::{self, Ingress, Lane, Own, Told};

pub(crate) fn lane_value(lane: &LaneState) -> Lane {
    match lane {
        LaneState::Ingress {
            client_id,
            epoch,
            leaves,
            told,
        } => Lane::Ingress(Ingress {
            client_id: client_id.to_string(),
            epoch: *epoch,
            leaves: leaves.clone(),
            told: told.as_ref().map(|told| Told {
                checkpoints: told.checkpoints,
                size: told.size,
                full_root: told.full_root.clone(),
            }),
        }),
        LaneState::Own {
            client_id,
            user,
            lane,
            epoch,
            connected,
            refused,
            ledger,
        } => Lane::Own(Own {
            client_id: client_id.to_string(),
            user: match user {
                LaneUser::Unknown => lane::LaneUser::Unknown,
                LaneUser::Anonymous => lane::LaneUser::Anonymous,
                LaneUser::Named(name) => lane::LaneUser::Named(name.to_string()),
            },
            lane: *lane,
            epoch: *epoch,
            connected_ms: u64::try_from(connected.as_millis()).unwrap_or(u64::MAX),
            refused: refused.clone(),
            ledger: ledger.clone(),
        }),
    }
}

pub(crate) fn lane_state(lane: Lane) -> LaneState {
    match lane {
        Lane::Ingress(lane) => LaneState::Ingress {
            client_id: Arc::from(lane.client_id),
            epoch: lane.epoch,
            leaves: lane.leaves,
            told: lane.told.map(|told| LaneTold {
                checkpoints: told.checkpoints,
                size: told.size,
                full_root: told.full_root,
            }),
        },
        Lane::Own(lane) => LaneState::Own {
            client_id: Arc::from(lane.client_id),
            user: match lane.user {
                lane::LaneUser::Unknown => LaneUser::Unknown,
                lane::LaneUser::Anonymous => LaneUser::Anonymous,
                lane::LaneUser::Named(name) => LaneUser::Named(name.into()),
            },
            lane: lane.lane,
            epoch: lane.epoch,
            connected: Duration::from_millis(lane.connected_ms),
            refused: lane.refused,
            ledger: lane.ledger,
        },
    }
}
