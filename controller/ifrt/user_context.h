// SPDX-License-Identifier: Apache-2.0
// A client's user contexts (Python tracebacks that the client keeps for as long as we may report an
// error about them).
#ifndef FAIRWAY_CONTROLLER_IFRT_USER_CONTEXT_H_
#define FAIRWAY_CONTROLLER_IFRT_USER_CONTEXT_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace fairway {

// One per request that names a context; the things that the request made hold it. The client counts
// one reference per request and drops one per report, so the context of every request is reported
// exactly once, when this is destroyed.
class UserContext {
 public:
  struct Destroyed {
    std::vector<uint64_t> ids;
    bool ended = false;  // nobody wants reports any more: any thread may destroy contexts
  };

  // nullptr for id 0, which means no context.
  static std::shared_ptr<UserContext> Make(uint64_t id, std::shared_ptr<Destroyed> destroyed) {
    if (id == 0) return nullptr;
    return std::shared_ptr<UserContext>(new UserContext(id, std::move(destroyed)));
  }
  UserContext(const UserContext&) = delete;
  UserContext& operator=(const UserContext&) = delete;
  ~UserContext() {
    if (!destroyed_->ended) destroyed_->ids.push_back(id_);
  }

 private:
  UserContext(uint64_t id, std::shared_ptr<Destroyed> destroyed)
      : id_(id), destroyed_(std::move(destroyed)) {}
  const uint64_t id_;
  const std::shared_ptr<Destroyed> destroyed_;
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_IFRT_USER_CONTEXT_H_
