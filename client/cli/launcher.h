// SPDX-License-Identifier: Apache-2.0
// The parent of a local cluster: starts the controller and the workers of each island, restarts
// children that die, and takes all of them down in the end. One thread, one poll loop; the children
// learn of its own death by end-of-file on a pipe.
#ifndef FAIRWAY_CLIENT_CLI_LAUNCHER_H_
#define FAIRWAY_CLIENT_CLI_LAUNCHER_H_

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "client/cli/process.h"

namespace fairway {

struct LauncherOptions {
  std::string programs;  // directory of fairway-controller and fairway-worker
  std::string runtime;   // "pjrt", "host" or "sim"
  std::string plugin;    // path of the PJRT plugin; pjrt only
  std::string plugin_kind = "cpu";
  std::vector<std::string> plugin_options;  // NAME=VALUE
  std::vector<std::string> preload;         // libraries
  std::vector<std::string> gpus;            // of each island's worker; empty: not of kind cuda
  double gpu_fraction = 0;                  // of these GPUs' memory; 0: as the plugin decides
  bool allow_raw_kernels = false;
  bool tune_on_gpu = false;
  std::string state_directory;  // log files go here
  std::string bind = "127.0.0.1";
  int islands = 1;
  int workers_per_island = 1;
  int devices = 1;            // per island
  int port = 0;               // of the controller's gRPC server
  int http_port = 0;          // 0: any free port
  int64_t device_memory = 0;  // bytes per device; 0: the runtime's figure
  std::chrono::milliseconds callback_limit{60000};
  std::chrono::milliseconds ready_timeout{60000};
};

class Launcher {
 public:
  explicit Launcher(LauncherOptions options);
  ~Launcher();  // ends children that still run

  // Blocks SIGINT, SIGTERM, SIGHUP and SIGCHLD for this process; from now on Start and Run read
  // them. Called first.
  absl::Status Prepare();

  // Starts everything and waits until all islands are up. ALREADY_EXISTS: the gRPC port is taken;
  // ABORTED: a signal asked to end; otherwise the cause with the last lines of the log.
  absl::Status Start();

  // Runs until a signal or `fairway down` ends the cluster (OK), or a child cannot be kept running.
  absl::Status Run();

  // Ends all children and their descendants, and waits until all of them are gone.
  void StopAll();

  // A summary of what was started, for people.
  std::string Summary() const;
  int http_port() const { return http_port_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Child {
    std::string name;
    std::string island;  // a worker's
    std::string gpus;    // a worker's; empty: none
    pid_t pid = 0;       // 0: not running
    int restarts = 0;
    Clock::time_point started;
    Clock::time_point restart_at;  // set while pid == 0 and a restart is due
    bool wanted = true;
    int exit_status = 0;
  };

  absl::Status StartController();
  absl::Status StartWorker(Child& worker);
  // Waits for one event, at most until `until`, and handles it.
  absl::Status Turn(Clock::time_point until);
  void ReadNotices();
  absl::Status ReapChildren();
  absl::Status OnControllerExit();
  absl::Status OnWorkerExit(Child& worker);
  absl::Status RestartDue();
  absl::Status Died(const Child& child) const;
  std::string LogOf(const std::string& name) const;
  bool signalled() const { return signal_ != 0; }

  const LauncherOptions options_;
  Child controller_;
  std::vector<Child> workers_;
  OwnedFd life_read_, life_write_;  // the children see its end-of-file
  OwnedFd notices_;                 // the controller writes lines of JSON
  std::string partial_notice_;
  OwnedFd signals_;
  bool listening_ = false;
  bool ready_once_ = false;
  bool ended_ = false;  // the controller was told to end the cluster
  int islands_up_ = 0;
  int link_port_ = 0;
  int data_port_ = 0;
  int http_port_ = 0;
  int signal_ = 0;
};

}  // namespace fairway

#endif  // FAIRWAY_CLIENT_CLI_LAUNCHER_H_
