// SPDX-License-Identifier: Apache-2.0
// The exchanges of one executor session, over its data plane.
#ifndef FAIRWAY_WORKER_EXECUTOR_GANG_EXCHANGES_H_
#define FAIRWAY_WORKER_EXECUTOR_GANG_EXCHANGES_H_

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "graph/plan.h"
#include "transport/data_plane.h"
#include "worker/executor/runtime/exchange.h"

namespace fairway {

// A member pulls the bytes that another member offers. A pull that comes first waits for the offer.
// Shared by the session and the exchanges made here, which keep it alive. Thread-safe.
class GangExchanges : public std::enable_shared_from_this<GangExchanges> {
 public:
  using Members = std::vector<InstallExecutable::Member>;

  // `plane` must live until Close.
  void Open(DataPlane* plane);
  // Fails with `why` everything that waits, and all later work.
  void Close(const absl::Status& why);

  std::shared_ptr<Exchange> Make(Members members, size_t self);

  // Handles a pull of a round. Never blocks.
  void OnPull(const PullRequest& request, DataPlane::Answer answer);
  // Fails with `cause` everything that launches `first` to `last` wait for, unless they have ended.
  void Abandon(uint64_t first, uint64_t last, const absl::Status& cause);
  // These launches do not run here: answers others that want their bytes with `cause`.
  void LeaveOut(uint64_t first, uint64_t last, const absl::Status& cause);
  // See Exchange::End.
  void End(uint64_t launch, const absl::Status& status);

  static constexpr size_t kMaxWaitingPulls = 4096;
  // Stretches of launches that failed here, for members that are slower. Beyond this number the two
  // oldest stretches become one, with the launches between them; bytes of those that a member still
  // wants fail as well.
  static constexpr size_t kMaxFailed = 16384;

 private:
  class Member;
  using Name = std::pair<uint32_t, int32_t>;  // round, part
  struct Offered {
    HostView bytes;
    std::vector<Incarnation> readers;  // those that have not asked yet
  };
  struct Waiting {
    PullRequest request;
    DataPlane::Answer answer;
  };
  struct Launch {
    std::map<Name, Offered> offered;
    std::vector<Waiting> waiting;
    bool ended = false;
  };
  struct Failed {
    uint64_t last = 0;
    absl::Status cause;
  };
  // One call of Take.
  struct Taking {
    size_t open = 0;
    absl::Status failure;
    std::vector<std::shared_ptr<Blob>> blobs;
  };

  void Offer(uint64_t launch, Name name, HostView bytes, std::vector<Incarnation> readers);
  absl::StatusOr<std::vector<std::shared_ptr<Blob>>> Take(
      const Members& members, uint64_t launch, uint32_t round,
      const std::vector<Exchange::Wanted>& wanted);
  // With the mutex held:
  // Answers the pull if it can; false: the pull must wait. `launch` is nullptr if nothing else is
  // known of the launch.
  bool TryAnswer(Launch* launch, const PullRequest& request, DataPlane::Answer& answer);
  void AnswerWaiting(Launch& launch);
  // Drops offers to `reader` before `launch`: a member that asks for bytes of a later launch wants
  // no bytes of earlier ones any more.
  void ForgetBefore(uint64_t launch, Incarnation reader);
  // Launches that have failed before keep their cause.
  void Fail(uint64_t first, uint64_t last, const absl::Status& why);
  // nullptr: the launch has not failed.
  const absl::Status* FailureOf(uint64_t launch) const;
  // Returns whether the launch can be forgotten: it has ended, and nobody wants its bytes.
  static bool Over(const Launch& launch) { return launch.ended && launch.offered.empty(); }

  std::mutex mutex_;
  std::condition_variable changed_;
  DataPlane* plane_ = nullptr;
  absl::Status closed_;
  std::map<uint64_t, Launch> launches_;
  std::map<uint64_t, Failed> failed_;  // by the first launch of each stretch; disjoint
  size_t num_waiting_ = 0;
  uint64_t ended_through_ = 0;
};

}  // namespace fairway

#endif  // FAIRWAY_WORKER_EXECUTOR_GANG_EXCHANGES_H_
