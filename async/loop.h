// SPDX-License-Identifier: Apache-2.0
// Where handlers wait for their turn: a process's event loop, or one in virtual time.
#ifndef FAIRWAY_ASYNC_LOOP_H_
#define FAIRWAY_ASYNC_LOOP_H_

#include <string_view>

#include <absl/functional/any_invocable.h>

namespace fairway {

// What needs no more of a loop than to come again later takes this, so that the simulation can run
// it in virtual time.
class Loop {
 public:
  using Handler = absl::AnyInvocable<void()>;

  virtual ~Loop() = default;
  // Runs `handler` in the loop, never within this call, after all that was posted before. `name`
  // must outlive the loop (a literal).
  virtual void Post(std::string_view name, Handler handler) = 0;
};

}  // namespace fairway

#endif  // FAIRWAY_ASYNC_LOOP_H_
