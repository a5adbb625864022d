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

// A member pulls what another offers; a pull that comes first waits for the offer. Thread-safe; the
// exchanges made here keep it alive.
class GangExchanges : public std::enable_shared_from_this<GangExchanges> {
 public:
  using Members = std::vector<InstallExecutable::Member>;

  // `plane` stays until Close.
  void Open(DataPlane* plane);
  // What waits fails with `why`, as does all later work.
  void Close(const absl::Status& why);

  std::shared_ptr<Exchange> Make(Members members, size_t self);

  // A pull of a round. Never blocks.
  void OnPull(const PullRequest& request, DataPlane::Answer answer);
  // What launches `first` to `last` wait for fails with `cause`, unless they have ended.
  void Abandon(uint64_t first, uint64_t last, const absl::Status& cause);
  // These launches do not run here: what others want of them is answered with `cause`.
  void LeaveOut(uint64_t first, uint64_t last, const absl::Status& cause);
  // See Exchange::End.
  void End(uint64_t launch, const absl::Status& status);

  static constexpr size_t kMaxWaitingPulls = 4096;
  // Stretches of launches that failed here, which members that are behind may ask for. Beyond that
  // the two oldest become one, with what lies between: what is still wanted of that fails too.
  static constexpr size_t kMaxFailed = 16384;

 private:
  class Member;
  using Name = std::pair<uint32_t, int32_t>;  // round, part
  struct Offered {
    HostView bytes;
    std::vector<Incarnation> readers;  // that have not asked yet
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
  // Answers it if it can be; false: it is to wait. `launch`: nullptr: nothing else is known of it.
  bool TryAnswer(Launch* launch, const PullRequest& request, DataPlane::Answer& answer);
  void AnswerWaiting(Launch& launch);
  // A member that asks for something of a later launch wants nothing of earlier ones any more.
  void ForgetBefore(uint64_t launch, Incarnation reader);
  // Those that have failed before keep their cause.
  void Fail(uint64_t first, uint64_t last, const absl::Status& why);
  // nullptr: it has not failed.
  const absl::Status* FailureOf(uint64_t launch) const;
  // Nothing more needs to be known of it: it has ended, and nobody wants anything of it.
  static bool Over(const Launch& launch) { return launch.ended && launch.offered.empty(); }

  std::mutex mutex_;
  std::condition_variable changed_;
  DataPlane* plane_ = nullptr;
  absl::Status closed_;
  std::map<uint64_t, Launch> launches_;
  std::map<uint64_t, Failed> failed_;  // by the first of them; disjoint
  size_t num_waiting_ = 0;
  uint64_t ended_through_ = 0;
};

}  // namespace fairway

#endif  // FAIRWAY_WORKER_EXECUTOR_GANG_EXCHANGES_H_
