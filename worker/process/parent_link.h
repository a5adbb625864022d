// SPDX-License-Identifier: Apache-2.0
// The link of an executor or a relay to the relay from which its island's log comes
// (docs/design/0066-relays.md).
#ifndef FAIRWAY_WORKER_PROCESS_PARENT_LINK_H_
#define FAIRWAY_WORKER_PROCESS_PARENT_LINK_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "async/event_loop.h"
#include "transport/link.h"

namespace fairway {

// Owned by ExecutorProcess or RelayProcess. Loop-confined; lives as long as its loop runs.
class ParentLink {
 public:
  // The owner's part; all are set.
  struct Handler {
    std::function<void(Link*)> on_open;          // sends its LogAsk
    std::function<void(const Frame&)> on_frame;  // a frame of the log
    std::function<void(Link*)> on_end;           // that link is not used any more
  };
  // `tls`: this worker's identity, or nullptr.
  ParentLink(EventLoop& loop, std::shared_ptr<TlsIdentity> tls, Handler handler)
      : loop_(loop), tls_{std::move(tls), Role::kWorker}, handler_(std::move(handler)) {}

  // Drops the link, if there is one; on_end does not come. Then connects to `endpoint`, and again
  // when that fails or ends, or its host is silent, in pauses that double from 20 to 500 ms until a
  // frame comes. Empty: to nobody.
  void Follow(const std::string& endpoint);
  // The parent sent what it should not have sent. Drops the link and connects again.
  void End(const std::string& why);
  // nullptr: there is none now.
  Link* link() const { return link_.get(); }

 private:
  static constexpr std::chrono::milliseconds kFirstPause{20};
  static constexpr std::chrono::milliseconds kMostPause{500};

  void Dial();
  void Again();
  void Drop();
  void OnConnected(absl::StatusOr<std::unique_ptr<Link>> link);

  EventLoop& loop_;
  const TlsUse tls_;
  const Handler handler_;
  std::string endpoint_;
  std::unique_ptr<Link> link_;
  std::chrono::milliseconds pause_ = kFirstPause;
  uint64_t dial_ = 0;  // fences what an earlier attempt began
};

}  // namespace fairway

#endif  // FAIRWAY_WORKER_PROCESS_PARENT_LINK_H_
