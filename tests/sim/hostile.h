// SPDX-License-Identifier: Apache-2.0
// A session that asks for as much as it can, one request after the other: hundreds of arrays,
// reshards of many pieces, long programs. Nobody compares its results, but each request must be
// answered, and its neighbour must not notice it (neighbour.h).
#ifndef FAIRWAY_TESTS_SIM_HOSTILE_H_
#define FAIRWAY_TESTS_SIM_HOSTILE_H_

#include <map>
#include <string>
#include <vector>

#include "controller/cluster/cluster.h"
#include "controller/cluster/virtual_device.h"
#include "tests/sim/session_owner.h"

namespace fairway::sim {

class World;

class Hostile final : public SessionOwner {
 public:
  Hostile(World& world, int number);

  SessionId session() const override { return session_; }
  bool done() const override { return done_; }
  bool waiting() const override { return !open_.empty(); }
  void Begin() override { StepIn(1); }
  void End() override;
  void ReportWaiting() override;
  void OnAnswer(uint64_t token, bool fetch, absl::StatusOr<BytesRef> result) override;

 private:
  void Step();
  void StepIn(int64_t time);
  void Open();
  void Close();
  void Put();
  void Copy();
  void Reshard();
  void Watch();
  void Errors();
  void Destruct(bool all);
  void Delete();
  void RunProgram();
  uint64_t BindProgram(const std::vector<int32_t>& devices);

  std::vector<int32_t> Some(int64_t most);
  // `count` of its arrays, some of them several times.
  std::vector<uint64_t> Handles(int64_t count);
  // A token that must be answered once.
  uint64_t Token(std::string what);
  void Answered(uint64_t token);
  Cluster::Done Keeps(std::string what);
  Cluster::Ended Ends(std::string what);

  World& world_;
  const int number_;
  SessionId session_;
  bool done_ = false;
  int left_ = 0;
  bool deleted_ = false;  // some of its arrays are deleted
  uint64_t next_token_ = 1;
  std::vector<VirtualDevice> devices_;  // all, by id
  std::vector<int32_t> usable_;         // not the neighbour's
  std::vector<uint64_t> arrays_;        // of kElements elements on kDevices devices
  std::vector<uint64_t> programs_;
  std::map<uint64_t, std::string> open_;  // requests that are not answered
};

}  // namespace fairway::sim

#endif  // FAIRWAY_TESTS_SIM_HOSTILE_H_
