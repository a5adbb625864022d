// SPDX-License-Identifier: Apache-2.0
// The executor process: its event loop, the link to the controller, and one ExecutorSession at a
// time.
#ifndef FAIRWAY_WORKER_EXECUTOR_EXECUTOR_PROCESS_H_
#define FAIRWAY_WORKER_EXECUTOR_EXECUTOR_PROCESS_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "async/blocking_pool.h"
#include "async/event_loop.h"
#include "fairway/v1/link.pb.h"
#include "worker/executor/client_calls.h"
#include "worker/executor/executor_session.h"
#include "worker/executor/launch_queues.h"
#include "worker/executor/registration.h"
#include "worker/executor/runtime/runtime.h"
#include "worker/process/controller_link.h"
#include "worker/process/parent_link.h"

namespace fairway {

// The configuration of an executor process, from its flags.
struct ExecutorConfig {
  std::string controller;            // host:port of the link port
  std::shared_ptr<TlsIdentity> tls;  // of the link and the data port; nullptr: without TLS
  std::string worker;
  std::string island;
  int island_workers = 1;
  int64_t device_memory = 0;  // bytes per device; 0: ask the runtime
  std::string data_bind = "127.0.0.1:0";
  std::string
      advertise_host;  // empty: the host of data_bind, or the host's name if that is any address
  // Socket to the supervisor, or -1. End of file on it ends this process. The process writes the
  // incarnation of every registration to it, 8 bytes each.
  int life_fd = -1;
  std::chrono::milliseconds drain_limit{10000};
  // With more memory mappings than this, the controller is asked to unload unused code. 0: half of
  // the kernel's limit for a process.
  int64_t max_mappings = 0;
};

// Registers at the controller, again and again, until the process ends. Loop-confined; made before
// Run.
class ExecutorProcess {
 public:
  ExecutorProcess(EventLoop& loop, ExecutorConfig config, Runtime* runtime);
  ~ExecutorProcess();

  // Begins to connect. Run waits for `exit_code`.
  void Start();
  // Runs the loop until the process is to end. Returns the exit code.
  int Run();
  // In the loop: lets launches under way end, reports them, then ends with 0.
  void Drain();

 private:
  using Clock = std::chrono::steady_clock;

  void Exit(int code, std::string why);
  void OnOpen();
  // Tells that there are devices. `incarnation`: of the registration that begins; 0: none does.
  absl::Status TellSupervisor(uint64_t incarnation);
  // An error that another try will not cure ends the process.
  absl::Status Register();
  void OnMessage(v1::FromController message);
  void OnRegistered(const v1::Registered& registered);
  void OnResumed(const v1::Resumed& resumed);
  // `relay`: it came from parent_; otherwise from the controller.
  void OnLogFrame(const std::string& frame, bool relay);
  // The log comes from somebody else from now on.
  void OnParent(const v1::LogParent& parent);
  // Connects again. The registration goes on if its connection was cut.
  void OnLinkEnd(const std::string& why, bool cut);
  // Ends this registration. A new one begins when the launches in flight have ended.
  void EndRegistration(const std::string& why);
  void WaitForLaunches();
  // Sends a message that must come although the connection may break.
  void SendKept(const v1::ToController& message);
  // Whether the registration of this incarnation lasts.
  bool Lasts(Incarnation incarnation) const;
  void SendReport(const Report& report);
  void SendLogReport(CommandInbox::With with);
  // Makes the client calls of a new registration.
  std::shared_ptr<ClientCalls> MakeClientCalls(Incarnation incarnation);
  void OnCallbackAnswer(const v1::LinkCallbackAnswer& answer);
  // Pulls the results of an answer that came without them.
  void PullResults(CallbackAnswer answer);
  void SendGivenUp(uint64_t call);
  void FillHeartbeat(v1::Heartbeat& to);
  void CheckDrained();
  std::string AdvertisedHost() const;
  std::string Absolute(const std::string& controller_endpoint) const;

  EventLoop& loop_;
  const ExecutorConfig config_;
  Runtime* const runtime_;
  BlockingPool blocking_;
  std::vector<std::unique_ptr<BlockingPool>>
      buffer_makers_;  // ExecutorSession::Context::buffer_makers
  LaunchQueues launches_;
  ControllerLink link_;
  ParentLink parent_;  // to the relay from which the log comes, if it does
  std::unique_ptr<ExecutorSession> session_;
  std::shared_ptr<ClientCalls> client_calls_;  // of session_
  Registration registration_;                  // of session_
  bool draining_ = false;
  Clock::time_point drain_until_;
  std::optional<int> exit_code_;
  // Set off the loop: loaded code has taken too many memory mappings.
  const std::shared_ptr<std::atomic<bool>> crowded_ = std::make_shared<std::atomic<bool>>(false);
};

// Runs the process once it has a runtime: the signals (SIGTERM drains, the supervisor handles
// SIGINT) and the loop. Leaves by _exit, because plugin threads may be busy for long.
[[noreturn]] void RunExecutor(const ExecutorConfig& config, Runtime* runtime);

}  // namespace fairway

#endif  // FAIRWAY_WORKER_EXECUTOR_EXECUTOR_PROCESS_H_
