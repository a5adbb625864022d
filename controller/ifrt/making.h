// SPDX-License-Identifier: Apache-2.0
// A request that makes many arrays, each with a type of its own. It makes some arrays at a time, so
// that no turn of the loop is long. Private to this folder.
#ifndef FAIRWAY_CONTROLLER_IFRT_MAKING_H_
#define FAIRWAY_CONTROLLER_IFRT_MAKING_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "controller/ifrt/session.h"
#include "controller/sessions/handle_lists.h"

namespace fairway {

//   kCheck -> kMake -> kFinish -> kDone     kCheck, kMake -> kUndo -> kDrop -> kDone
//
// It goes through its arrays once in each phase. Its session takes no other request meanwhile. If
// the session ends first, the cluster gives up the arrays that were made.
class IfrtSession::Making {
 public:
  enum class Phase : uint8_t { kCheck, kMake, kFinish, kUndo, kDrop, kDone };
  // The most arrays, and the most parts of arrays (shards), of one turn.
  static constexpr size_t kArraysOfATurn = 256;
  static constexpr size_t kPartsOfATurn = 4096;

  virtual ~Making() = default;
  Making(const Making&) = delete;
  Making& operator=(const Making&) = delete;

  // Does some more of it; at its end it has answered. Returns whether it is over.
  bool GoOn();
  // The request's arrays: a measure of how long destroying it takes.
  size_t arrays() const { return arrays_; }

 protected:
  // `asked` has a handle per array, or is empty.
  Making(IfrtSession& session, Call call, size_t arrays, const HandleList& asked);

  // The work of a phase on one array. An error of the first two refuses the request: arrays that
  // were made are undone, and host buffers that nobody will take are dropped.
  virtual absl::Status Check(size_t i) = 0;
  virtual absl::StatusOr<uint64_t> Make(size_t i, uint64_t asked) = 0;
  virtual void Finish(size_t i) {}
  virtual void Undo(size_t i) {}
  virtual void Drop(size_t i) {}
  // The array's parts; at least as many as a phase goes through.
  virtual size_t Parts(size_t i) const = 0;
  virtual HandleList* Results(Response& response) = 0;

  IfrtSession& s;
  absl::Status status_;  // not OK: the request is refused

 private:
  void Do(size_t i);
  // Goes to the next phase that has something to do.
  void NextPhase();
  void End();

  Call call_;
  const size_t arrays_;
  const std::vector<uint64_t> asked_;
  std::unique_ptr<Response> response_;
  HandleList* results_ = nullptr;  // in response_
  Phase phase_ = Phase::kCheck;
  size_t next_ = 0;  // the phase's next array
  size_t made_ = 0;
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_IFRT_MAKING_H_
