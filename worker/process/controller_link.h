// SPDX-License-Identifier: Apache-2.0
// The link of a worker's process (supervisor or executor) to its controller. It connects until that
// succeeds, sends heartbeats, logs that the controller is stalled, and gives up one that is silent
// for too long. LinkLife decides when; this has the sockets and timers.
#ifndef FAIRWAY_WORKER_PROCESS_CONTROLLER_LINK_H_
#define FAIRWAY_WORKER_PROCESS_CONTROLLER_LINK_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "async/event_loop.h"
#include "fairway/v1/link.pb.h"
#include "transport/link.h"
#include "worker/process/link_life.h"

namespace fairway {

// Owned by Supervisor or ExecutorProcess. Loop-confined; lives as long as its loop runs.
class ControllerLink {
 public:
  // The owner's part; set all before the first Connect.
  struct Handler {
    std::function<void()> on_open;                       // registers
    std::function<void(v1::FromController)> on_message;  // every message but heartbeat answers
    std::function<void(const Frame&)> on_log_frame;      // of executors and relays
    // The owner calls Connect when it wants. `cut`: the connection broke; neither end gave it up.
    std::function<void(const std::string& why, bool cut)> on_end;
    // All but the sequence number. What it sends itself goes before the heartbeat.
    std::function<void(v1::Heartbeat&)> fill_heartbeat;
    // For links that go on after a cut (transport/kept_frames.h); else nullptr. `taken` returns
    // whether the frame's message is to be handled; an error ends the link.
    std::function<void(Frame&)> stamp = nullptr;
    std::function<absl::StatusOr<bool>(const Frame&)> taken = nullptr;
    // No connection could be made; it is tried again.
    std::function<void()> on_unreachable = nullptr;
  };

  // `controller`: host:port of its link port. `stalled_after`: the silence after which it is said
  // once to be stalled. `tls`: this worker's identity, or nullptr.
  ControllerLink(EventLoop& loop, std::string controller, std::shared_ptr<TlsIdentity> tls,
                 Handler handler,
                 std::chrono::milliseconds stalled_after = std::chrono::seconds(3));

  // Connects: the first time at once, later after a pause that doubles until a registration holds.
  void Connect();
  // Gives up connecting, until the next Connect.
  void StopConnecting() { ++dial_; }
  // Call it once the controller has accepted the registration.
  void StartHeartbeats(int64_t interval_ms, int64_t deadline_ms);
  // Call it once the controller has accepted to go on, on a new connection.
  void ResumeHeartbeats() { StartHeartbeats(life_.interval().count(), life_.deadline().count()); }
  // Both do nothing without a connection.
  void Send(const v1::ToController& message);
  void Send(Frame frame);
  // Drops the connection. Calls on_end before it returns.
  void End(const std::string& why, bool cut = false);
  // Sends the queued messages, then closes; then on_end comes.
  void Close();

  // Whether the end that on_end tells of is none that was told before, since a registration held.
  bool end_is_news() const { return end_is_news_; }
  bool connected() const { return link_ != nullptr; }
  size_t queued_bytes() const { return link_ == nullptr ? 0 : link_->queued_bytes(); }
  // A number that grows with each connection and with its end. It fences answers of an earlier one.
  uint64_t connection() const { return connection_; }
  const std::string& controller() const { return controller_; }

 private:
  void Dial(uint64_t dial);
  void OnConnected(absl::StatusOr<std::unique_ptr<Link>> link);
  void OnFrame(const Frame& frame);
  void Beat(uint64_t connection);

  EventLoop& loop_;
  const std::string controller_;
  const TlsUse tls_;
  const Handler handler_;
  std::unique_ptr<Link> link_;
  LinkLife life_;
  uint64_t connection_ = 0;
  uint64_t dial_ = 0;  // fences what an earlier Connect began
  bool failure_logged_ = false;
  bool end_is_news_ = true;
  std::string last_end_;  // why the connection before ended; empty: a registration has held since
};

// What this process takes of its host, for a heartbeat.
void FillOwnLoad(v1::Heartbeat& to);

}  // namespace fairway

#endif  // FAIRWAY_WORKER_PROCESS_CONTROLLER_LINK_H_
