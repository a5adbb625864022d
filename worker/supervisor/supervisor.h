// SPDX-License-Identifier: Apache-2.0
// The daemon of a worker: starts and watches the executor, the relay if it has one, and the compile
// processes, never loads the plugin itself, and keeps the supervisor link of
// proto/fairway/v1/link.proto.
#ifndef FAIRWAY_WORKER_SUPERVISOR_SUPERVISOR_H_
#define FAIRWAY_WORKER_SUPERVISOR_SUPERVISOR_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "async/blocking_pool.h"
#include "async/event_loop.h"
#include "async/service_manager.h"
#include "base/ids.h"
#include "base/recent_lines.h"
#include "fairway/v1/link.pb.h"
#include "worker/compiler/compile_pool.h"
#include "worker/process/controller_link.h"
#include "worker/process/pulse.h"
#include "worker/supervisor/certificate_renewal.h"
#include "worker/supervisor/executor_account.h"
#include "worker/supervisor/executor_child.h"

namespace fairway {

// The configuration of a supervisor, from the worker's flags.
struct SupervisorConfig {
  std::string controller;            // host:port of the link port
  std::shared_ptr<TlsIdentity> tls;  // nullptr: without TLS
  std::string worker;
  std::string island;
  std::vector<std::string> executor_argv;
  std::vector<std::string> relay_argv;  // empty: the worker has no relay
  CompilePool::Options compile;         // without argv the worker has no compiler
  std::vector<std::string> child_env;   // "NAME=value", for executor and compile processes
  std::chrono::milliseconds drain_limit{10000};
  ExecutorAccount::Options restarts;
  std::chrono::milliseconds compile_limit{600000};
  // What this process logs; its children's lines are added. The controller may ask for them.
  std::shared_ptr<RecentLines> lines = std::make_shared<RecentLines>();
};

// Owned by main. Loop-confined; made before Run.
class Supervisor {
 public:
  // `manager` hears that the worker serves when its executor has devices and the controller, or the
  // controller cannot be reached, which is not this host's fault.
  Supervisor(EventLoop& loop, ServiceManager& manager, SupervisorConfig config);
  ~Supervisor();

  // Starts the children and begins to connect. UNAVAILABLE: a child cannot be started.
  absl::Status Start();
  // Runs the loop until the process is to end. Returns the exit code (worker/process/exit_codes.h).
  int Run();
  // In the loop: ends the executor when its work in flight has ended, then ends this process with
  // 0.
  void Drain(std::string why, std::chrono::milliseconds limit);
  // In the loop: what keeps this worker from running programs, in a word; empty: nothing does.
  std::string_view NotReady() const;
  // In the loop: for this process, its executors and its relay, the running ones too. `level` has
  // passed CheckLogLevel.
  void SetLogLevel(const std::string& level);

 private:
  void StartExecutor();
  void OnExecutorStarted(const v1::ExecutorStarted& started);
  // `tried`: the executor has a connection to the controller, or there is none to be had.
  void TellWhenReady(bool tried);
  void OnExecutorEnd(const ProcessEnd& end);
  void StartRelay();
  void Register();
  void OnLinkEnd(const std::string& why);
  void OnMessage(v1::FromController message);
  void OnRegistered(const v1::WorkerRegistered& registered);
  void OnCompile(v1::LinkCompileRequest request);
  void OnKill(const v1::KillExecutor& kill);
  void OnAskRecentLines(const v1::AskRecentLines& ask);
  void SendDeaths();
  void Exit(int code, std::string why);

  EventLoop& loop_;
  ServiceManager& manager_;
  SupervisorConfig config_;
  const Incarnation incarnation_;
  std::unique_ptr<CompilePool> compiler_;
  std::unique_ptr<ExecutorChild> executor_;
  bool executor_has_devices_ = false;
  bool controller_tried_ = false;
  ExecutorAccount account_;  // of executor_ and those before it
  uint64_t executor_starts_ = 0;

  std::unique_ptr<ExecutorChild> relay_;
  std::chrono::milliseconds relay_pause_{1000};  // before it is started again

  ControllerLink link_;
  Pulse pulse_;  // runs while this worker is registered
  bool registered_ = false;
  std::unique_ptr<CertificateRenewal> renewal_;  // nullptr: without TLS

  // The latest question for the lines: its connection and number. What is being prepared answers
  // it, whichever question began that.
  std::pair<uint64_t, uint64_t> lines_asked_;
  bool preparing_lines_ = false;
  BlockingPool redaction_{"fairway-lines", 1};

  bool stopping_ = false;
  std::optional<int> exit_code_;
};

}  // namespace fairway

#endif  // FAIRWAY_WORKER_SUPERVISOR_SUPERVISOR_H_
