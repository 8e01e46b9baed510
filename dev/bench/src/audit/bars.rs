//! What holds each bar of the proof: a figure of this record, or a test.

/// As the record ends.
pub(super) const BARS: &str = "\
## What holds each bar

Figures are those above, and of `cargo xtask bench audit --trial` where a line is named. Tests are functions of their crate.

| bar | figures | tests |
|---|---|---|
| 1: a million messages through real processes with 1 to 1,000 injections, one checkpoint in eight lost, old messages replayed, C restarted 20 times: each injection is named, and nothing else | line-1, line-10, line-100, line-1000, line-false; without processes faults, dense, false | merkle-log: `every_fault_is_named_with_its_kind_and_number_and_nothing_else_is`, `a_forged_message_without_a_way_back_leaves_its_window_unproven`, `what_no_checkpoint_covers_is_never_called_lost`; client: `what_a_consumer_had_asked_for_comes_to_it_after_its_restart` |
| 1: the count of moved messages is n - LIS | in line-… each moved message is a name, so one too many is in line-false and one too few is unseen; swaps | merkle-log: `moved_is_n_less_the_longest_increasing_subsequence` |
| 1: no false verdict for who sees a part of a lane, comes late, shares a group, drains a queue, or has overlapping subscriptions | | client: `who_sees_some_topics_of_a_lane_names_no_fault`, `who_comes_late_or_sees_a_retained_or_second_copy_names_no_fault`, `members_of_a_group_claim_nothing_alone_and_prove_all_together`, `who_drains_a_queue_of_what_came_while_it_was_away_names_no_fault`, `overlapping_filters_bring_each_message_once_and_each_subscription_its_own` |
| 2: no swap of neighbours unseen | swaps | merkle-log: `no_swap_of_neighbours_goes_unseen` |
| 3: a loss is suspected at the next message and confirmed in 2 s, silence is found in two heartbeats | line-loss | merkle-log: `a_loss_is_suspected_at_the_next_message_and_confirmed_within_two_seconds`, `the_loss_of_the_last_messages_is_confirmed_within_two_seconds`, `silence_is_found_in_two_heartbeats` |
| 4: bytes, and a repair that sends again what is missing and nothing else | standing, loss, forged, dropped | client: `a_repair_sends_again_what_is_missing_and_nothing_else` |
| 5: the ledger to only hashing | xxh3, sha-256, blake3 | |
| 5: a broker that stamps to one that does not | stamping, stamping200 | |
| 6: memory of a lane in order, and duplicates of any age | lane | merkle-log: `a_lane_in_order_takes_at_most_2_kib_at_every_point_of_a_window`, `it_agrees_with_a_plain_set`, `a_restored_ledger_knows_each_old_message_and_each_that_is_missing` |
| 7: the format, to the byte | heritage | merkle-log: `every_example_of_the_document_is_what_is_written_by_us`, and all of `rfc9162.rs` (with `ct-merkle` as the oracle), `heritage.rs` and `thex.rs`; fuzz targets `audit`, `heritage` and `ledger` |
";
