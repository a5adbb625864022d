// SPDX-License-Identifier: Apache-2.0
// A client's user contexts (Python tracebacks that it keeps while we may still report an error of
// theirs).
#ifndef FAIRWAY_CONTROLLER_IFRT_USER_CONTEXT_H_
#define FAIRWAY_CONTROLLER_IFRT_USER_CONTEXT_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace fairway {

// One per request that names a context; held by what the request made. The client counts one
// reference per request and drops one per report, so every request's context is reported exactly
// once, when it is destroyed.
class UserContext {
 public:
  struct Destroyed {
    std::vector<uint64_t> ids;
    bool ended = false;  // nobody wants to know any more: from then on any thread may destroy them
  };

  // nullptr for id 0, which means none.
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
