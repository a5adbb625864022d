// SPDX-License-Identifier: Apache-2.0
// Who has a session of the simulated controller, and hears what it is answered.
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

  // None: it has no session now.
  virtual SessionId session() const = 0;
  // It has done all it wanted to do.
  virtual bool done() const = 0;
  // For answers.
  virtual bool waiting() const = 0;
  virtual void Begin() = 0;
  // Gives all up.
  virtual void End() = 0;
  virtual void ReportWaiting() = 0;

  // From the core, at the end of any operation; it may call the core.
  virtual void OnAnswer(uint64_t token, bool fetch, absl::StatusOr<BytesRef> result) = 0;

 protected:
  SessionOwner() = default;
};

}  // namespace fairway::sim

#endif  // FAIRWAY_TESTS_SIM_SESSION_OWNER_H_
