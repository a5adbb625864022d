// SPDX-License-Identifier: Apache-2.0
// The seam for scheduling policies: a policy picks which of the sessions that are ready goes next.
// Within a session the order is that of its submissions, whatever the policy.
#ifndef FAIRWAY_SCHEDULER_SESSION_POLICY_H_
#define FAIRWAY_SCHEDULER_SESSION_POLICY_H_

#include <concepts>
#include <map>

#include "base/ids.h"

namespace fairway {

// What a policy must offer. It is a concept and not an interface with virtual calls, because a pick
// is made for each node that is admitted. A pure state machine, owned by whoever has the sessions.
template <typename P>
concept SessionPolicy = requires(P policy, std::map<SessionId, int>& ready, SessionId session) {
  // Returns which of `ready` goes next. `ready` is not empty and ordered by session.
  { policy.Pick(ready) } -> std::same_as<std::map<SessionId, int>::iterator>;
  // The session goes next, if it is ready then: room was made for it.
  policy.ServeNext(session);
};

// Sessions take turns, in the order of their numbers.
class RoundRobin {
 public:
  template <typename Ready>
  typename Ready::iterator Pick(Ready& ready) {
    auto next = ready.upper_bound(served_);
    if (next == ready.end()) next = ready.begin();
    served_ = next->first;
    return next;
  }
  void ServeNext(SessionId session) { served_ = SessionId(session.value - 1); }

 private:
  SessionId served_;  // the session that had the last turn
};
static_assert(SessionPolicy<RoundRobin>);

}  // namespace fairway

#endif  // FAIRWAY_SCHEDULER_SESSION_POLICY_H_
