// SPDX-License-Identifier: Apache-2.0
// Planted bugs: test-only switches that break one rule each, so that the simulation can prove that
// it would find such a bug. Outside builds with FAIRWAY_PLANTED_BUGS, Planted() is constant false
// and costs nothing.
#ifndef FAIRWAY_BASE_PLANTED_H_
#define FAIRWAY_BASE_PLANTED_H_

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
  kGangBehindTransfer,  // dispatch: a gang is launched behind a transfer that has not ended
  kBehindForEver,       // dispatch: what waited behind a transfer counts as waiting for ever
  kHearNothing,         // dispatch: does not say that a failure was heard of
  kSpanOfOthers,        // dispatch: a launch for all goes to executors that have no part in it
  kMissStepEnd,         // executor: a step waits for one that ended while its inputs were looked at
  kMissInputEnd,        // executor: a step waits for inputs that ended before it was written down
  kAnswerReenters,      // answers come in the middle of the operation that makes them
  kAnswerEnded,         // answers to a session that an answer has ended
  kLossForgetsGroups,   // losses: tells only the first slice of groups
  kLossForgetsNodes,    // losses: tells only the first slice of nodes
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
  kGoodBlock,         // executor: what a block should have made is good although a step has failed
  kOneIdForBlock,     // executor: a block takes one launch id
  kFirstOutput,       // executor: a sequence that follows another one takes its first output
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
  kNeverLate,            // links: a relay that is late stays in the tree
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
  kShowCordoned,         // cordons: a session that is opened later sees the island
  kDrainedTakesWork,     // cordons: work that comes to a drained island is taken
  kDrainForgetsCalls,    // cordons: a call that is being made does not hold its islands
  kDrainForgetsHolder,   // cordons: an island is drained although one session holds it
};

#ifdef FAIRWAY_PLANTED_BUGS
inline Bug g_planted_bug = Bug::kNone;
inline bool Planted(Bug bug) { return g_planted_bug == bug; }
#else
constexpr bool Planted(Bug) { return false; }
#endif

}  // namespace fairway

#endif  // FAIRWAY_BASE_PLANTED_H_
