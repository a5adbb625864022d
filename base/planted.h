// SPDX-License-Identifier: Apache-2.0
// Planted bugs: test-only switches that break one rule each, so that the simulation can prove that
// it would find such a bug. Outside builds with FAIRWAY_PLANTED_BUGS, Planted() is constant false
// and costs nothing.
#ifndef FAIRWAY_BASE_PLANTED_H_
#define FAIRWAY_BASE_PLANTED_H_

#include <array>
#include <string_view>
#include <utility>

namespace fairway {

enum class Bug {
  kNone,
  kLaunchOutOfOrder,       // sequencer: grants the newest launchable gang the smaller id late
  kLaunchTwice,            // sequencer: grants one gang twice
  kLaunchIdReused,         // sequencer: two gangs get the same id
  kLaunchBeforeInputs,     // dispatch: a gang counts as arrived while one input is missing
  kLaunchWithPoison,       // dispatch: a failed input counts as arrived
  kLaunchOnSomeExecutors,  // dispatch: leaves out one executor of the gang
  kTooManyGangs,           // launches and starts gangs beyond the limits
  kFirstOnOneDevice,       // executor: starts a gang that is first on one of its devices only
  kOneLineForAll,          // executor: gangs of other devices wait, too
  kDropRelease,            // group: a reader's end is not counted
  kDoubleRelease,          // group: a reader's end is counted twice
  kFreeUnderReader,        // group: freed although a node still reads it
  kFreeUnderTransfer,      // group: freed although a transfer still reads it
  kDonateWithReader,       // dispatch: donation granted beside another reader
  kSkipFence,              // accepts reports of an old incarnation
  kLoseCompletion,         // forgets a finished node
  kAdmitBeyondMemory,      // admission: ignores the limit
  kLeakReservation,        // admission: does not give temporary memory back
  kAdmitOutOfOrder,        // admission: a small node overtakes a large one that waits
  kForgetSessionArrays,    // closing a session leaves its arrays
  kLoseWatch,              // does not tell a watcher of a failed group
  kWrongCause,             // poison takes the latest failed input's error
  kIgnoreLoss,             // losing an executor leaves its groups ready
  kCrossSession,           // a handle of another session is accepted
  kServeBeforeReady,       // executor: a pull is answered before the shard is computed
  kReportEarly,            // executor: a launch is reported when it starts
  kWatermarkSkips,         // executor: the watermark passes an unfinished node
  kForgetEndedSend,        // executor: a pull that comes after its transfer's end waits for ever
  // executor: an end of a receive that was taken back ends the one prepared anew
  kMixAttempts,
  // group: losing an executor frees bytes that a launched gang still reads on another one
  kFreeAtLoss,
  kLeaveTakenBack,     // memory: a receive that is taken back leaves the bytes that it had received
  kWaitForEver,        // memory: does not fail a node that can never fit beside the rest
  kGiveUpEarly,        // memory: fails a node that would fit once running work has ended
  kFollowAnyone,       // executor: starts a launch after one that no stream orders it after
  kLeaveRequest,       // closing a session leaves what a request of several turns has made so far
  kLoseAnswer,         // a request of several turns is not answered
  kServeTooSoon,       // losses: serves an executor again before all have heard of its loss
  kForgetBusy,         // slices: a session with work left gets no other slice
  kEndlessSlice,       // slices: does all the work of a session in one slice
  kForgetTurn,         // turns: does not ask for another turn for the work that is left
  kForgetWaiters,      // slices: tells only the first slice of those that wait for a group
  kLoadedForAnother,   // told: code that an earlier attempt waited for counts for the present one
  kIgnoreInputsEnded,  // dispatch: launches before it has heard how its inputs ended
  kLaunchBeforeTold,   // dispatch: launches before its executors know all that it reads and makes
  kForgetRest,         // dispatch: tells them only the first of that
  kMissStepEnd,        // executor: a step waits for one that ended while its inputs were looked at
  kMissInputEnd,       // executor: a step waits for inputs that ended before it was written down
  kAnswerReenters,     // answers come in the middle of the operation that makes them
  kAnswerEnded,        // answers to a session that an answer has ended
  kLossForgetsGroups,  // losses: tells only the first slice of groups
  kLossForgetsNodes,   // losses: tells only the first slice of nodes
  kLossTakesNothingBack,  // losses: does not take back the nodes that must run again
  kLossHeardByNobody,     // losses: the island does not learn that all have heard
  // losses: uses code that was loaded with the lost executor with its successor
  kKeepShared,
  kForgetArrayBytes,   // records: counts an array that was given up
  kForgetTotal,        // records: does not take bytes that a session gives up from the total
  kForgetNodeBytes,    // records: counts a node that has ended
  kCloseLeavesRun,     // closing: leaves the values of a program that is being made
  kCloseLeavesNodes,   // closing: waiting nodes go on waiting
  kNeverOverdue,       // ticks: does not report a receive that failed while its peer lives
  kSkipItem,           // requests of many: skips the item at which a slice ends
  kWatchFirst,         // requests of many: waits only for the first of several watched arrays
  kDestructKeepsView,  // requests of many: keeps a view that was given up
  kOneHandleForTwo,    // requests of many: two results get one handle
  kHoldForEver,        // requests of many: does not let go of the results that the request held
  kForgetDonation,     // requests of many: does not take arrays that were given away
  kMadeOfAnother,      // reshard: a shard made of a new one takes the source's bytes
  // programs: a step takes over a transferred value that another argument has, too
  kTakeOverTwice,
  kNoAbandon,         // dispatch: does not tell the peers of a member that failed alone
  kIdsOfTheBlock,     // executor: a branch takes the launch ids of the block that ran
  kLeaveOutSilently,  // executor: leaves a step out and does not tell the others
  kKeepFailed,        // memory: keeps the memory of outputs that a launch failed to make reserved
  kDropKept,          // codec: does not send arguments that must not be donated
  kDropFailedArguments,  // codec: does not send failed arguments of a sequence
  kSwapInputs,           // codec: reads inputs by argument, not by device
  kMoveBox,              // codec: does not send where a box begins
  kReportOne,            // codec: reports only the first of nodes that ended out of order
  kFailAllOutputs,       // codec: does not send which output a failure belongs to
  kAbandonBegun,         // executor: does not abandon a launch that waits for its turn
  // uploads: an array made of a stored upload has the bytes of its first shard
  kStoreFirst,
  kKeepPlaced,           // uploads: bytes that were put on devices for a stored upload outlive it
  kKeepStoredBytes,      // uploads: counts bytes that were given up
  kDeleteStoredOnly,     // uploads: does not delete the bytes on devices with the stored upload
  kEndedForAnother,      // work: the end of an earlier attempt counts
  kPacedForEver,         // fetches: one that waits for its client is never woken
  kLeaveSequence,        // programs: a program that is given up keeps the last of its sequences
  kForgetExecutorTurn,   // executor: does not ask for another turn for the work that is left
  kForgetSequence,       // executor: a sequence with instructions left gets no other slice
  kEndlessTurn,          // executor: does all the work in one turn
  kClockJumps,           // controller: the time of a stop counts
  kKeepLingering,        // links: entries that linger do not leave at a tick
  kEntriesForSuccessor,  // links: entries for a lost executor go to the next one
  kOvertakeWaiting,      // links: what waits for a version is overtaken by what comes later
  kSentElsewhere,        // links: what was sent on a link that broke counts as sent on the next one
  kForgetCut,            // links: a version forgets what it had sent to an executor without a link
  kResendNothing,        // links: messages that were lost with a connection are not sent again
  kForgetEarlyEnds,      // relay: an end that is reported before the entry has come is forgotten
  kForgetForAbsent,      // relay: entries that come before their child has a link are dropped
  kKnownIsConcluded,     // relay: tells its children that what they have ended is concluded
  kBehindIsServed,       // relay and controller: who lacks concluded entries goes on
  kTroubleUnheard,       // links: what a relay says of a child changes nothing
  kLostRelayStays,       // links: a relay that is lost stays in the tree
  kSilentRelayStays,     // links: a relay that is silent stays in the tree
  kRelayTwice,           // tree: a relay has two places
  kTellAllBelow,         // relay: an entry goes to all children
  kSkipOpen,             // links: a relay is not sent again what is not concluded
  kCrowdedInSilence,     // relay: tells nobody that it has given up a crowded child
  kDeafRelay,            // relay: does not notice that a relay below it is silent
  kAskOnly,              // executor: on a new link to its parent it does not report again
  kFloorOfPredecessor,   // log: what was concluded for a lost executor is asked of the next one
  kSendUnasked,          // links: an executor that had a relay is sent its entries before it asks
  kDeafToPulse,          // hub: a silent host is not noticed
  kSilentForEver,        // hub: an executor may be silent for ever
  kCauseNeverDue,        // hub: without an account of its death an executor is not lost
  kCutIsEnd,             // hub: an executor whose connection breaks is lost at once
  kResumeOfLost,         // hub: an executor that was declared lost goes on
  kDeathIsCut,           // hub: the end of a worker's processes is taken for connections that broke
  kLostTwice,            // hub: an executor that is lost is lost again when its death is told
  kForgetKill,           // hub: a lost executor is neither fenced nor killed
  kRestartOne,           // hub: a restart ends one executor of the island
  kRestartAgain,         // hub: a restart under way is no reason not to restart
  kAnyDeath,             // hub: the death of an earlier incarnation ends the one that is up
  kKeepCompilation,      // hub: what a worker that goes away compiles is never answered
  kReportsAreSilence,    // hub: only what comes first is heard
  kOwnStopIsSilence,     // worker: a process that was stopped takes the controller for silent
  kNeverGivesUp,         // worker: waits for ever for a controller that is silent
  kForgetLaunchIds,      // executor: registers anew as if it had seen no launch id
  kRegisterTooSoon,      // executor: registers anew while launches are in flight
  kHeldForEver,          // a node that waits for room for its commands does not try again
  kShardOfOnePiece,      // executor: a shard is made once one of its pieces has come
  kTicketOfAnother,      // transfers: a receiver gets the ticket of another transfer
  kAnyTicket,            // data port: serves whoever asks
};

inline constexpr std::array kAllBugs = {
    std::pair{Bug::kLaunchOutOfOrder, std::string_view("launch_out_of_order")},
    std::pair{Bug::kLaunchTwice, std::string_view("launch_twice")},
    std::pair{Bug::kLaunchIdReused, std::string_view("launch_id_reused")},
    std::pair{Bug::kLaunchBeforeInputs, std::string_view("launch_before_inputs")},
    std::pair{Bug::kLaunchWithPoison, std::string_view("launch_with_poison")},
    std::pair{Bug::kLaunchOnSomeExecutors, std::string_view("launch_on_some_executors")},
    std::pair{Bug::kTooManyGangs, std::string_view("too_many_gangs")},
    std::pair{Bug::kFirstOnOneDevice, std::string_view("first_on_one_device")},
    std::pair{Bug::kOneLineForAll, std::string_view("one_line_for_all")},
    std::pair{Bug::kDropRelease, std::string_view("drop_release")},
    std::pair{Bug::kDoubleRelease, std::string_view("double_release")},
    std::pair{Bug::kFreeUnderReader, std::string_view("free_under_reader")},
    std::pair{Bug::kFreeUnderTransfer, std::string_view("free_under_transfer")},
    std::pair{Bug::kDonateWithReader, std::string_view("donate_with_reader")},
    std::pair{Bug::kSkipFence, std::string_view("skip_fence")},
    std::pair{Bug::kLoseCompletion, std::string_view("lose_completion")},
    std::pair{Bug::kAdmitBeyondMemory, std::string_view("admit_beyond_memory")},
    std::pair{Bug::kLeakReservation, std::string_view("leak_reservation")},
    std::pair{Bug::kAdmitOutOfOrder, std::string_view("admit_out_of_order")},
    std::pair{Bug::kForgetSessionArrays, std::string_view("forget_session_arrays")},
    std::pair{Bug::kLoseWatch, std::string_view("lose_watch")},
    std::pair{Bug::kWrongCause, std::string_view("wrong_cause")},
    std::pair{Bug::kIgnoreLoss, std::string_view("ignore_loss")},
    std::pair{Bug::kCrossSession, std::string_view("cross_session")},
    std::pair{Bug::kServeBeforeReady, std::string_view("serve_before_ready")},
    std::pair{Bug::kReportEarly, std::string_view("report_early")},
    std::pair{Bug::kWatermarkSkips, std::string_view("watermark_skips")},
    std::pair{Bug::kForgetEndedSend, std::string_view("forget_ended_send")},
    std::pair{Bug::kMixAttempts, std::string_view("mix_attempts")},
    std::pair{Bug::kFreeAtLoss, std::string_view("free_at_loss")},
    std::pair{Bug::kLeaveTakenBack, std::string_view("leave_taken_back")},
    std::pair{Bug::kWaitForEver, std::string_view("wait_for_ever")},
    std::pair{Bug::kGiveUpEarly, std::string_view("give_up_early")},
    std::pair{Bug::kFollowAnyone, std::string_view("follow_anyone")},
    std::pair{Bug::kLeaveRequest, std::string_view("leave_request")},
    std::pair{Bug::kLoseAnswer, std::string_view("lose_answer")},
    std::pair{Bug::kServeTooSoon, std::string_view("serve_too_soon")},
    std::pair{Bug::kForgetBusy, std::string_view("forget_busy")},
    std::pair{Bug::kEndlessSlice, std::string_view("endless_slice")},
    std::pair{Bug::kForgetTurn, std::string_view("forget_turn")},
    std::pair{Bug::kForgetWaiters, std::string_view("forget_waiters")},
    std::pair{Bug::kLoadedForAnother, std::string_view("loaded_for_another")},
    std::pair{Bug::kIgnoreInputsEnded, std::string_view("ignore_inputs_ended")},
    std::pair{Bug::kLaunchBeforeTold, std::string_view("launch_before_told")},
    std::pair{Bug::kForgetRest, std::string_view("forget_rest")},
    std::pair{Bug::kMissStepEnd, std::string_view("miss_step_end")},
    std::pair{Bug::kMissInputEnd, std::string_view("miss_input_end")},
    std::pair{Bug::kAnswerReenters, std::string_view("answer_reenters")},
    std::pair{Bug::kAnswerEnded, std::string_view("answer_ended")},
    std::pair{Bug::kLossForgetsGroups, std::string_view("loss_forgets_groups")},
    std::pair{Bug::kLossForgetsNodes, std::string_view("loss_forgets_nodes")},
    std::pair{Bug::kLossTakesNothingBack, std::string_view("loss_takes_nothing_back")},
    std::pair{Bug::kLossHeardByNobody, std::string_view("loss_keeps_island")},
    std::pair{Bug::kKeepShared, std::string_view("keep_shared_code")},
    std::pair{Bug::kForgetArrayBytes, std::string_view("forget_array_bytes")},
    std::pair{Bug::kForgetTotal, std::string_view("forget_total")},
    std::pair{Bug::kForgetNodeBytes, std::string_view("forget_node_bytes")},
    std::pair{Bug::kCloseLeavesRun, std::string_view("close_leaves_run")},
    std::pair{Bug::kCloseLeavesNodes, std::string_view("close_leaves_nodes")},
    std::pair{Bug::kNeverOverdue, std::string_view("never_overdue")},
    std::pair{Bug::kSkipItem, std::string_view("skip_item")},
    std::pair{Bug::kWatchFirst, std::string_view("watch_first")},
    std::pair{Bug::kDestructKeepsView, std::string_view("destruct_keeps_view")},
    std::pair{Bug::kOneHandleForTwo, std::string_view("one_handle_for_two")},
    std::pair{Bug::kHoldForEver, std::string_view("hold_for_ever")},
    std::pair{Bug::kForgetDonation, std::string_view("forget_donation")},
    std::pair{Bug::kMadeOfAnother, std::string_view("made_of_another")},
    std::pair{Bug::kTakeOverTwice, std::string_view("take_over_twice")},
    std::pair{Bug::kNoAbandon, std::string_view("no_abandon")},
    std::pair{Bug::kIdsOfTheBlock, std::string_view("ids_of_the_block")},
    std::pair{Bug::kLeaveOutSilently, std::string_view("leave_out_silently")},
    std::pair{Bug::kKeepFailed, std::string_view("keep_failed")},
    std::pair{Bug::kDropKept, std::string_view("drop_kept")},
    std::pair{Bug::kDropFailedArguments, std::string_view("drop_failed_arguments")},
    std::pair{Bug::kSwapInputs, std::string_view("swap_inputs")},
    std::pair{Bug::kMoveBox, std::string_view("move_box")},
    std::pair{Bug::kReportOne, std::string_view("report_one")},
    std::pair{Bug::kFailAllOutputs, std::string_view("fail_all_outputs")},
    std::pair{Bug::kAbandonBegun, std::string_view("abandon_begun")},
    std::pair{Bug::kStoreFirst, std::string_view("store_first")},
    std::pair{Bug::kKeepPlaced, std::string_view("keep_placed")},
    std::pair{Bug::kKeepStoredBytes, std::string_view("keep_stored_bytes")},
    std::pair{Bug::kDeleteStoredOnly, std::string_view("delete_stored_only")},
    std::pair{Bug::kEndedForAnother, std::string_view("ended_for_another")},
    std::pair{Bug::kPacedForEver, std::string_view("paced_for_ever")},
    std::pair{Bug::kLeaveSequence, std::string_view("leave_sequence")},
    std::pair{Bug::kForgetExecutorTurn, std::string_view("forget_executor_turn")},
    std::pair{Bug::kForgetSequence, std::string_view("forget_sequence")},
    std::pair{Bug::kEndlessTurn, std::string_view("endless_turn")},
    std::pair{Bug::kClockJumps, std::string_view("clock_jumps")},
    std::pair{Bug::kKeepLingering, std::string_view("keep_lingering")},
    std::pair{Bug::kEntriesForSuccessor, std::string_view("entries_for_successor")},
    std::pair{Bug::kOvertakeWaiting, std::string_view("overtake_waiting")},
    std::pair{Bug::kSentElsewhere, std::string_view("sent_elsewhere")},
    std::pair{Bug::kForgetCut, std::string_view("forget_cut")},
    std::pair{Bug::kResendNothing, std::string_view("resend_nothing")},
    std::pair{Bug::kForgetEarlyEnds, std::string_view("forget_early_ends")},
    std::pair{Bug::kForgetForAbsent, std::string_view("forget_for_absent")},
    std::pair{Bug::kKnownIsConcluded, std::string_view("known_is_concluded")},
    std::pair{Bug::kBehindIsServed, std::string_view("behind_is_served")},
    std::pair{Bug::kTroubleUnheard, std::string_view("trouble_unheard")},
    std::pair{Bug::kLostRelayStays, std::string_view("lost_relay_stays")},
    std::pair{Bug::kSilentRelayStays, std::string_view("silent_relay_stays")},
    std::pair{Bug::kRelayTwice, std::string_view("relay_twice")},
    std::pair{Bug::kTellAllBelow, std::string_view("tell_all_below")},
    std::pair{Bug::kSkipOpen, std::string_view("skip_open")},
    std::pair{Bug::kCrowdedInSilence, std::string_view("crowded_in_silence")},
    std::pair{Bug::kDeafRelay, std::string_view("deaf_relay")},
    std::pair{Bug::kAskOnly, std::string_view("ask_only")},
    std::pair{Bug::kFloorOfPredecessor, std::string_view("floor_of_predecessor")},
    std::pair{Bug::kSendUnasked, std::string_view("send_unasked")},
    std::pair{Bug::kDeafToPulse, std::string_view("deaf_to_pulse")},
    std::pair{Bug::kSilentForEver, std::string_view("silent_for_ever")},
    std::pair{Bug::kCauseNeverDue, std::string_view("cause_never_due")},
    std::pair{Bug::kCutIsEnd, std::string_view("cut_is_end")},
    std::pair{Bug::kResumeOfLost, std::string_view("resume_of_lost")},
    std::pair{Bug::kDeathIsCut, std::string_view("death_is_cut")},
    std::pair{Bug::kLostTwice, std::string_view("lost_twice")},
    std::pair{Bug::kForgetKill, std::string_view("forget_kill")},
    std::pair{Bug::kRestartOne, std::string_view("restart_one")},
    std::pair{Bug::kRestartAgain, std::string_view("restart_again")},
    std::pair{Bug::kAnyDeath, std::string_view("any_death")},
    std::pair{Bug::kKeepCompilation, std::string_view("keep_compilation")},
    std::pair{Bug::kReportsAreSilence, std::string_view("reports_are_silence")},
    std::pair{Bug::kOwnStopIsSilence, std::string_view("own_stop_is_silence")},
    std::pair{Bug::kNeverGivesUp, std::string_view("never_gives_up")},
    std::pair{Bug::kForgetLaunchIds, std::string_view("forget_launch_ids")},
    std::pair{Bug::kRegisterTooSoon, std::string_view("register_too_soon")},
    std::pair{Bug::kHeldForEver, std::string_view("held_for_ever")},
    std::pair{Bug::kShardOfOnePiece, std::string_view("shard_of_one_piece")},
    std::pair{Bug::kTicketOfAnother, std::string_view("ticket_of_another")},
    std::pair{Bug::kAnyTicket, std::string_view("any_ticket")},
};

#ifdef FAIRWAY_PLANTED_BUGS
inline Bug g_planted_bug = Bug::kNone;
inline bool Planted(Bug bug) { return g_planted_bug == bug; }
#else
constexpr bool Planted(Bug) { return false; }
#endif

}  // namespace fairway

#endif  // FAIRWAY_BASE_PLANTED_H_
