// SPDX-License-Identifier: Apache-2.0
// An owner of a session at the simulated controller, which gets the session's answers.
#ifndef FAIRWAY_TESTS_SIM_SESSION_OWNER_H_
#define FAIRWAY_TESTS_SIM_SESSION_OWNER_H_

#include <cstdint>

#include "base/blob.h"
#include "base/ids.h"
#include "base/status.h"

namespace fairway::sim {

class SessionOwner {
 public:
  virtual ~SessionOwner() = default;
  SessionOwner(const SessionOwner&) = delete;
  SessionOwner& operator=(const SessionOwner&) = delete;

  // Empty: it has no session now.
  virtual SessionId session() const = 0;
  // Whether it has done all its work.
  virtual bool done() const = 0;
  // Whether answers are missing.
  virtual bool waiting() const = 0;
  virtual void Begin() = 0;
  // Gives up everything.
  virtual void End() = 0;
  virtual void ReportWaiting() = 0;

  // The core calls it at the end of any operation. It may call the core.
  virtual void OnAnswer(uint64_t token, bool fetch, absl::StatusOr<BytesRef> result) = 0;
  // A program that was to be bound in slices.
  virtual void OnBound(uint64_t key, const absl::StatusOr<uint64_t>& program) {}

 protected:
  SessionOwner() = default;
};

}  // namespace fairway::sim

#endif  // FAIRWAY_TESTS_SIM_SESSION_OWNER_H_
