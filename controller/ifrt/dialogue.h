// SPDX-License-Identifier: Apache-2.0
// For golden tests: a session as a dialogue of text. A request is an IfrtRequest in protobuf text
// form; op_id is the number of the request, unless given. An answer is one line:
//   "3 #2 check_future_response { }"   request 3, seq_num 2, its response
//   "3 NOT_FOUND: there is no ..."     request 3, an error: the response is unset
// Shorthands in requests: @one(DEVICE), @all(DEVICE...), @cut(DEVICE...) stand for the sharding
// field of an array on one device, replicated, cut along its first dimension; @kept(DEVICE KIND)
// for that of an array in a kind of memory; @layout(MINOR-TO-MAJOR...) and
// @compact(MAJOR-TO-MINOR...) for the layout field, in PJRT's and in IFRT's form; @program(N
// DEVICE...) for program and compile_options of N partitions; @f32(DIM...) for dtype and shape
// fields; @map(IN OUT FROM... TO...) for a mapping of a remap plan (FROM, TO: start, end, step).
#ifndef FAIRWAY_CONTROLLER_IFRT_DIALOGUE_H_
#define FAIRWAY_CONTROLLER_IFRT_DIALOGUE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "controller/ifrt/test_cluster.h"

namespace fairway {

// The text with its shorthands written out.
std::string Expanded(std::string text);

inline constexpr char kFirst[] = "1152921504606846976";   // the server's first handle
inline constexpr char kFuture[] = "2305843009213693952";  // the first future's handle

class Dialogue : public testing::Test, public IfrtShell {
 protected:
  static constexpr uint64_t kId = 77;

  // As in TestCluster.
  explicit Dialogue(int64_t stored_array_bytes = -1,
                    size_t record_memory = ClusterOptions().record_memory);
  // Checks that all that the client owned is gone, and that the cluster's rules hold.
  void TearDown() override;

  // The lines that came before this request, and those that answer it at once.
  std::string Ask(const std::string& request);
  // The lines that came since the last call.
  std::string Take();
  // Lets the executors carry out their commands. Returns the lines that follow.
  std::string Run();
  // The lines that come at once, and those that follow when the executors have run.
  std::string AskAndRun(const std::string& request) {
    const std::string now = Ask(request);
    return now + Run();
  }

  // Makes array `handle`, f32[n] on `device` with `bytes` (4n of them), ready.
  void Put(uint64_t handle, int device, const std::string& bytes);
  // Compiles an executable over these devices. Returns its handle.
  uint64_t Compiled(const std::string& devices, int arguments, int results,
                    std::vector<int> donated = {});
  // The bytes of a host buffer, or its error; "waits" while neither has come.
  std::string Lookup(uint64_t handle);

  TestCluster cluster_;
  IfrtSession* session_ = nullptr;

 private:
  // IfrtShell
  void Send(std::unique_ptr<xla::ifrt::proxy::IfrtResponse> response, bool may_wait) override;
  void RunOffLoop(std::function<void()> work, std::function<void()> then) override;
  void Discard(std::shared_ptr<void> garbage) override {
    cluster_.RunOffLoop([garbage = std::move(garbage)] {}, [] {});
  }

  uint64_t next_op_ = 1;
  std::vector<std::string> lines_;
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_IFRT_DIALOGUE_H_
