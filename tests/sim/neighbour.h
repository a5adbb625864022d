// SPDX-License-Identifier: Apache-2.0
// A session with devices of its own beside hostile ones. Each of its answers must come within a
// bound of virtual time, whatever the others ask for.
#ifndef FAIRWAY_TESTS_SIM_NEIGHBOUR_H_
#define FAIRWAY_TESTS_SIM_NEIGHBOUR_H_

#include <set>
#include <vector>

#include "controller/cluster/cluster.h"
#include "tests/sim/code.h"
#include "tests/sim/session_owner.h"

namespace fairway::sim {

class World;

class Neighbour final : public SessionOwner {
 public:
  explicit Neighbour(World& world);

  SessionId session() const override { return session_; }
  bool done() const override { return left_ <= 0 && !waiting(); }
  bool waiting() const override { return !open_.empty(); }
  void Begin() override { StepIn(1); }
  void End() override;
  void ReportWaiting() override;
  void OnAnswer(uint64_t token, bool fetch, absl::StatusOr<BytesRef> result) override;

 private:
  void Step();
  void StepIn(int64_t time);
  void Open();
  // Puts an array, computes with it, asks for the result.
  void Ask();
  // Microseconds that an answer may take.
  int64_t Bound() const;
  bool Fine(const absl::Status& status, const char* what);

  World& world_;
  SessionId session_;
  int left_ = 0;
  std::vector<int32_t> devices_;
  Code* code_ = nullptr;
  uint64_t executable_ = 0;
  uint64_t next_token_ = 1;
  int64_t asked_at_ = 0;
  uint64_t value_ = 0;  // the expected value of the result
  std::vector<uint64_t> arrays_;
  std::set<uint64_t> open_;  // tokens
};

}  // namespace fairway::sim

#endif  // FAIRWAY_TESTS_SIM_NEIGHBOUR_H_
