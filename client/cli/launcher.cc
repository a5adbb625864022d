// SPDX-License-Identifier: Apache-2.0
#include "client/cli/launcher.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include <spdlog/spdlog.h>
#include <nlohmann/json.hpp>

#include "base/host.h"

namespace fairway {
namespace {

using std::chrono::milliseconds;

constexpr int kLifeFd = 3;
constexpr int kNotifyFd = 4;
constexpr int kMaxRestarts = 20;  // of one child that never ran for kStable
constexpr milliseconds kStable{30000};
constexpr milliseconds kStopGrace{10000};  // for an orderly end; then SIGKILL
constexpr int kExitPortInUse = 5;          // fairway-controller's
constexpr int kExitBadFlags = 2;           // of both

milliseconds Backoff(int restarts) {
  return milliseconds(std::min(100 << std::min(restarts, 6), 5000));
}

// The message of the first error in the log lines; if there is none, the last line.
std::string FirstError(const std::string& lines) {
  std::istringstream in(lines);
  std::string line;
  while (std::getline(in, line)) {
    const auto record = nlohmann::json::parse(line, nullptr, false);
    if (!record.is_object()) continue;
    // Other programs write JSON too, with fields of other types.
    const auto level = record.find("level"), text = record.find("msg");
    if (level != record.end() && *level == "error" && text != record.end() && text->is_string())
      return text->get<std::string>();
  }
  return line.empty() ? "its log is empty" : line;
}

// The processes whose parent is `parent`.
std::vector<pid_t> ChildrenOf(pid_t parent) {
  std::vector<pid_t> out;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream in(entry.path() / "stat");
    std::string text;
    std::getline(in, text);
    const size_t after_name = text.rfind(')');
    pid_t ppid = 0;
    char state = 0;
    if (after_name != std::string::npos &&
        ::sscanf(text.c_str() + after_name + 1, " %c %d", &state, &ppid) == 2 && ppid == parent) {
      out.push_back(std::stoi(name));
    }
  }
  return out;
}

}  // namespace

Launcher::Launcher(LauncherOptions options)
    : options_(std::move(options)), http_port_(options_.http_port) {
  controller_.name = "controller";
  // Padded with zeros, because clients see the islands in the order of their names.
  const size_t digits = std::to_string(options_.islands - 1).size();
  for (int i = 0; i < options_.islands; ++i) {
    for (int k = 0; k < options_.workers_per_island; ++k) {
      Child& worker = workers_.emplace_back();
      worker.name = fmt::format("w{:0{}}", i, digits);
      if (options_.workers_per_island > 1) {
        const size_t of_island = std::to_string(options_.workers_per_island - 1).size();
        worker.name += fmt::format(".{:0{}}", k, of_island);
      }
      worker.island = fmt::format("island{:0{}}", i, digits);
      if (!options_.gpus.empty()) worker.gpus = options_.gpus[i];
    }
  }
}

Launcher::~Launcher() { StopAll(); }

absl::Status Launcher::Prepare() {
  sigset_t handled;
  ::sigemptyset(&handled);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) ::sigaddset(&handled, number);
  ::sigprocmask(SIG_BLOCK, &handled, nullptr);
  signals_ = OwnedFd(::signalfd(-1, &handled, SFD_CLOEXEC | SFD_NONBLOCK));
  if (signals_.get() < 0) return Error(absl::StatusCode::kInternal, "signalfd failed");
  // Executors whose supervisor dies become our children, so that StopAll can wait for them.
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  FAIRWAY_ASSIGN_OR_RETURN(auto life, MakePipe());
  std::tie(life_read_, life_write_) = std::move(life);
  return absl::OkStatus();
}

std::string Launcher::LogOf(const std::string& name) const {
  return fmt::format("{}/{}.log", options_.state_directory, name);
}

absl::Status Launcher::StartController() {
  FAIRWAY_ASSIGN_OR_RETURN(auto notices, MakePipe());
  ChildSpec spec;
  spec.command = {options_.programs + "/fairway-controller",
                  "--bind=" + options_.bind,
                  fmt::format("--port={}", options_.port),
                  fmt::format("--http-port={}", http_port_),
                  fmt::format("--link-port={}", link_port_),
                  fmt::format("--data-port={}", data_port_),
                  fmt::format("--callback-limit={}ms", options_.callback_limit.count()),
                  "--log-dir=" + options_.state_directory,
                  fmt::format("--life-fd={}", kLifeFd),
                  fmt::format("--notify-fd={}", kNotifyFd)};
  spec.log_file = LogOf("controller");
  spec.inherited = {{life_read_.get(), kLifeFd}, {notices.second.get(), kNotifyFd}};
  FAIRWAY_ASSIGN_OR_RETURN(controller_.pid, StartChild(spec));
  controller_.started = Clock::now();
  listening_ = false;
  islands_up_ = 0;
  partial_notice_.clear();
  notices_ = std::move(notices.first);
  ::fcntl(notices_.get(), F_SETFL, O_NONBLOCK);
  return absl::OkStatus();
}

absl::Status Launcher::StartWorker(Child& worker) {
  ChildSpec spec;
  spec.command = {options_.programs + "/fairway-worker",
                  "--name=" + worker.name,
                  "--island=" + worker.island,
                  "--controller=" + HostPort(options_.bind, link_port_),
                  fmt::format("--island-workers={}", options_.workers_per_island),
                  fmt::format("--devices={}", options_.devices / options_.workers_per_island),
                  fmt::format("--device-memory={}", options_.device_memory),
                  "--runtime=" + options_.runtime,
                  "--plugin=" + options_.plugin,
                  "--plugin-kind=" + options_.plugin_kind,
                  fmt::format("--allow-raw-kernels={}", options_.allow_raw_kernels),
                  fmt::format("--tune-on-gpu={}", options_.tune_on_gpu),
                  fmt::format("--life-fd={}", kLifeFd)};
  for (const std::string& option : options_.plugin_options)
    spec.command.push_back("--plugin-option=" + option);
  if (!worker.gpus.empty()) {
    spec.command.push_back("--gpus=" + worker.gpus);
    spec.command.push_back(fmt::format("--gpu-fraction={}", options_.gpu_fraction));
  }
  for (const std::string& library : options_.preload)
    spec.command.push_back("--preload=" + library);
  spec.log_file = LogOf(worker.name);
  spec.inherited = {{life_read_.get(), kLifeFd}};
  FAIRWAY_ASSIGN_OR_RETURN(worker.pid, StartChild(spec));
  worker.started = Clock::now();
  return absl::OkStatus();
}

absl::Status Launcher::Start() {
  const auto deadline = Clock::now() + options_.ready_timeout;
  FAIRWAY_RETURN_IF_ERROR(StartController());
  while (!listening_) {
    FAIRWAY_RETURN_IF_ERROR(Turn(deadline));
    if (signalled() || ended_) return Error(absl::StatusCode::kAborted, "interrupted");
    if (Clock::now() >= deadline) {
      return Error(absl::StatusCode::kDeadlineExceeded, "the controller did not start; see {}",
                   LogOf("controller"));
    }
  }
  for (Child& worker : workers_) FAIRWAY_RETURN_IF_ERROR(StartWorker(worker));
  while (islands_up_ < options_.islands) {
    FAIRWAY_RETURN_IF_ERROR(Turn(deadline));
    if (signalled() || ended_) return Error(absl::StatusCode::kAborted, "interrupted");
    if (Clock::now() >= deadline) {
      return Error(absl::StatusCode::kDeadlineExceeded,
                   "only {} of {} islands are up after {} s; logs are in {}", islands_up_,
                   options_.islands, options_.ready_timeout.count() / 1000,
                   options_.state_directory);
    }
  }
  ready_once_ = true;
  return absl::OkStatus();
}

absl::Status Launcher::Run() {
  while (!signalled() && !ended_) {
    FAIRWAY_RETURN_IF_ERROR(Turn(Clock::now() + std::chrono::hours(1)));
  }
  return absl::OkStatus();
}

absl::Status Launcher::Turn(Clock::time_point until) {
  for (const Child& worker : workers_) {
    if (worker.pid == 0 && worker.wanted && worker.restart_at > Clock::time_point()) {
      until = std::min(until, worker.restart_at);
    }
  }
  if (controller_.pid == 0 && controller_.restart_at > Clock::time_point()) {
    until = std::min(until, controller_.restart_at);
  }
  const auto left = std::chrono::duration_cast<milliseconds>(until - Clock::now()).count();
  pollfd events[2] = {{signals_.get(), POLLIN, 0}, {notices_.get(), POLLIN, 0}};
  ::poll(events, 2, static_cast<int>(std::clamp<int64_t>(left + 1, 0, 3600 * 1000)));
  if (events[1].revents != 0) ReadNotices();
  if (events[0].revents != 0) {
    bool child = false;
    signalfd_siginfo info{};
    while (::read(signals_.get(), &info, sizeof(info)) == sizeof(info)) {
      if (info.ssi_signo == SIGCHLD) {
        child = true;
      } else {
        signal_ = static_cast<int>(info.ssi_signo);
      }
    }
    if (child) FAIRWAY_RETURN_IF_ERROR(ReapChildren());
  }
  return RestartDue();
}

void Launcher::ReadNotices() {
  char buffer[4096];
  ssize_t n;
  while ((n = ::read(notices_.get(), buffer, sizeof(buffer))) > 0) {
    partial_notice_.append(buffer, static_cast<size_t>(n));
  }
  if (n == 0) notices_.Reset();
  for (size_t end; (end = partial_notice_.find('\n')) != std::string::npos;) {
    const auto notice = nlohmann::json::parse(partial_notice_.substr(0, end), nullptr, false);
    partial_notice_.erase(0, end + 1);
    if (!notice.is_object()) continue;
    const std::string event = notice.value("event", "");
    if (event == "listening") {
      listening_ = true;
      link_port_ = notice.value("link_port", 0);
      data_port_ = notice.value("data_port", 0);
      http_port_ = notice.value("http_port", 0);
    } else if (event == "islands") {
      islands_up_ = notice.value("up", 0);
    }
  }
}

absl::Status Launcher::ReapChildren() {
  absl::Status out;
  int status = 0;
  for (pid_t pid; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) {
    Child* child = nullptr;
    if (pid == controller_.pid) child = &controller_;
    for (Child& worker : workers_) {
      if (pid == worker.pid) child = &worker;
    }
    if (child == nullptr) continue;  // an adopted grandchild
    child->pid = 0;
    child->exit_status = status;
    const absl::Status one = child == &controller_ ? OnControllerExit() : OnWorkerExit(*child);
    if (out.ok()) out = one;
  }
  return out;
}

absl::Status Launcher::Died(const Child& child) const {
  const bool bad_flags =
      WIFEXITED(child.exit_status) && WEXITSTATUS(child.exit_status) == kExitBadFlags;
  return Error(bad_flags ? absl::StatusCode::kInvalidArgument : absl::StatusCode::kUnavailable,
               "{} ended with {}: {} (log: {})", child.name, DescribeExit(child.exit_status),
               FirstError(TailOfFile(LogOf(child.name), 20)), LogOf(child.name));
}

absl::Status Launcher::OnControllerExit() {
  ReadNotices();
  const int status = controller_.exit_status;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
    ended_ = true;
    return absl::OkStatus();
  }
  if (!ready_once_) {
    if (WIFEXITED(status) && WEXITSTATUS(status) == kExitPortInUse) {
      return Error(absl::StatusCode::kAlreadyExists, "{}",
                   FirstError(TailOfFile(LogOf("controller"), 20)));
    }
    return Died(controller_);
  }
  if (Clock::now() - controller_.started > kStable) controller_.restarts = 0;
  if (++controller_.restarts > kMaxRestarts) return Died(controller_);
  controller_.restart_at = Clock::now() + Backoff(controller_.restarts);
  spdlog::warn("the controller ended with {}; starting it again", DescribeExit(status));
  return absl::OkStatus();
}

absl::Status Launcher::OnWorkerExit(Child& worker) {
  if (ended_) return absl::OkStatus();
  if (!ready_once_) return Died(worker);
  if (WIFEXITED(worker.exit_status) && WEXITSTATUS(worker.exit_status) == 0) {
    worker.wanted = false;
    spdlog::info("worker {} ended by itself", worker.name);
    return absl::OkStatus();
  }
  if (Clock::now() - worker.started > kStable) worker.restarts = 0;
  if (++worker.restarts > kMaxRestarts) return Died(worker);
  worker.restart_at = Clock::now() + Backoff(worker.restarts);
  spdlog::warn("worker {} ended with {}; starting it again", worker.name,
               DescribeExit(worker.exit_status));
  return absl::OkStatus();
}

absl::Status Launcher::RestartDue() {
  const auto now = Clock::now();
  if (ended_ || signalled() || !ready_once_) return absl::OkStatus();
  if (controller_.pid == 0 && now >= controller_.restart_at)
    FAIRWAY_RETURN_IF_ERROR(StartController());
  for (Child& worker : workers_) {
    if (worker.pid == 0 && worker.wanted && now >= worker.restart_at) {
      FAIRWAY_RETURN_IF_ERROR(StartWorker(worker));
    }
  }
  return absl::OkStatus();
}

void Launcher::StopAll() {
  if (life_write_.get() < 0) return;
  ended_ = true;
  for (const Child& worker : workers_) {
    if (worker.pid != 0) ::kill(worker.pid, SIGTERM);
  }
  if (controller_.pid != 0) ::kill(controller_.pid, SIGTERM);
  const auto deadline = Clock::now() + kStopGrace;
  bool killed = false;
  int status = 0;
  while (true) {
    pid_t pid;
    while ((pid = ::waitpid(-1, &status, WNOHANG)) > 0) {
      for (Child& worker : workers_) {
        if (worker.pid == pid) worker.pid = 0;
      }
      if (controller_.pid == pid) controller_.pid = 0;
    }
    if (pid < 0 && errno == ECHILD) break;
    const bool named_gone =
        controller_.pid == 0 &&
        std::all_of(workers_.begin(), workers_.end(), [](const Child& w) { return w.pid == 0; });
    // The rest are executors that lost their supervisor.
    if (named_gone) life_write_.Reset();
    if (Clock::now() >= deadline && !killed) {
      killed = true;
      life_write_.Reset();
      for (const pid_t child : ChildrenOf(::getpid())) {
        spdlog::warn("process {} did not end; killing it", child);
        ::kill(child, SIGKILL);
      }
    } else if (killed && Clock::now() >= deadline + kStopGrace) {
      break;
    }
    pollfd events = {signals_.get(), POLLIN, 0};
    ::poll(&events, 1, 100);
    signalfd_siginfo info{};
    while (::read(signals_.get(), &info, sizeof(info)) == sizeof(info)) {
    }
  }
  life_write_.Reset();
}

std::string Launcher::Summary() const {
  std::string out = fmt::format("controller  {} (pid {}), metrics http://{}/metrics\n",
                                HostPort(options_.bind, options_.port), controller_.pid,
                                HostPort(options_.bind, http_port_));
  for (size_t i = 0; i < workers_.size(); ++i) {
    out +=
        fmt::format("{:<11} worker {} (pid {}), {} devices\n", workers_[i].island, workers_[i].name,
                    workers_[i].pid, options_.devices / options_.workers_per_island);
  }
  return out + fmt::format("logs        {}\n", options_.state_directory);
}

}  // namespace fairway
