// SPDX-License-Identifier: Apache-2.0
// For golden tests: a session as a dialogue of text. Requests are IfrtRequest in protobuf text
// form; op_id is the number of the request, unless given. An answer is one line:
//   "3 #2 check_future_response { }"   request 3, seq_num 2, its response
//   "3 NOT_FOUND: there is no ..."     request 3, an error: the response is unset
// Shorthands in requests: @one(DEVICE), @all(DEVICE...), @cut(DEVICE...) stand for the sharding
// field of an array on one device, replicated, cut along its first dimension; @kept(DEVICE KIND)
// for that of one in a kind of memory; @layout(MINOR-TO-MAJOR...) and @compact(MAJOR-TO-MINOR...)
// for the layout field, as PJRT's and as IFRT's own; @program(N DEVICE...) for program and
// compile_options of N partitions; @f32(DIM...) for dtype and shape fields;
// @map(IN OUT FROM... TO...) for a mapping of a remap plan, FROM and TO being start, end, step.
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

// Text with its shorthands written out.
std::string Expanded(std::string text);

inline constexpr char kFirst[] = "1152921504606846976";   // the first handle that the server makes
inline constexpr char kFuture[] = "2305843009213693952";  // and the first future

class Dialogue : public testing::Test, public IfrtShell {
 protected:
  static constexpr uint64_t kId = 77;

  // `stored_array_bytes`: as in TestCluster.
  explicit Dialogue(int64_t stored_array_bytes = -1);
  // Everything that the client owned is gone, and the cluster's rules hold.
  void TearDown() override;

  // The lines answered to this request at once, and those that came in between.
  std::string Ask(const std::string& request);
  // The lines that came since.
  std::string Take();
  // Lets the executors do what they were told; the lines that follow.
  std::string Run();
  // What comes at once, and what follows from it.
  std::string AskAndRun(const std::string& request) {
    const std::string now = Ask(request);
    return now + Run();
  }

  // f32[n] `handle` on `device`, with `bytes` (4n of them), there.
  void Put(uint64_t handle, int device, const std::string& bytes);
  // An executable over these devices, compiled; its handle.
  uint64_t Compiled(const std::string& devices, int arguments, int results,
                    std::vector<int> donated = {});
  // The bytes of a host buffer, or the error; "waits" while neither is there.
  std::string Lookup(uint64_t handle);

  TestCluster cluster_;
  IfrtSession* session_ = nullptr;

 private:
  // IfrtShell
  void Send(std::unique_ptr<xla::ifrt::proxy::IfrtResponse> response) override;
  void RunOffLoop(std::function<void()> work, std::function<void()> then) override;
  void Discard(std::shared_ptr<void> garbage) override {
    cluster_.RunOffLoop([garbage = std::move(garbage)] {}, [] {});
  }

  uint64_t next_op_ = 1;
  std::vector<std::string> lines_;
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_IFRT_DIALOGUE_H_
