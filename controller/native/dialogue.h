// SPDX-License-Identifier: Apache-2.0
// For golden tests: a session as a dialogue of text. A request is a fairway.v1.Request in protobuf
// text form; the id is the number of the request, unless given. An answer is one line:
//   "3 done"                          request 3 was done, with nothing to say
//   "3 compiled { ... }"              request 3, its result
//   "3 NOT_FOUND: there is no ..."    request 3, an error
//   "3 bytes 0: aaaabbbb"             request 3, a fetch: the bytes of its first shard
// Shorthands in requests: @f32(DIM... | DEVICE...) is the spec of an array replicated over these
// devices, @cut(DIM... | DEVICE...) of an array cut along its first dimension.
#ifndef FAIRWAY_CONTROLLER_NATIVE_DIALOGUE_H_
#define FAIRWAY_CONTROLLER_NATIVE_DIALOGUE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "controller/ifrt/test_cluster.h"
#include "controller/native/door.h"

namespace fairway {

class NativeDialogue : public testing::Test, public NativeShell {
 protected:
  NativeDialogue();
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

  // Makes `array`, f32 on `device` with `bytes`, and waits until it is there.
  void Put(uint64_t array, int device, const std::string& bytes);
  // Compiles `handle` over these devices; its f32[8] arguments and results are cut over them.
  void Compiled(uint64_t handle, const std::string& devices, int arguments, int results,
                std::vector<int> donated = {});

  TestCluster cluster_;
  NativeDoor door_;
  NativeSession* session_ = nullptr;

 private:
  // NativeShell
  void Send(v1::Answer answer) override;
  void SendSerialized(std::string message) override;
  void SendBytes(uint64_t id, int32_t index, BytesRef bytes) override;
  void RunOffLoop(std::function<void()> work, std::function<void()> then) override;
  void Discard(std::shared_ptr<void> garbage) override {
    cluster_.RunOffLoop([garbage = std::move(garbage)] {}, [] {});
  }

 protected:
  int serialized_ = 0;   // messages that came serialized
  BytesRef last_bytes_;  // those of a fetch

 private:
  uint64_t next_id_ = 1;
  std::vector<std::string> lines_;
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_NATIVE_DIALOGUE_H_
