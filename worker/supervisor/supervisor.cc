// SPDX-License-Identifier: Apache-2.0
#include "worker/supervisor/supervisor.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include <spdlog/spdlog.h>

#include "base/crc32c.h"
#include "base/host.h"
#include "base/log.h"
#include "base/redact.h"
#include "wire/link_codec.h"
#include "worker/process/exit_codes.h"

namespace fairway {
namespace {

using std::chrono::milliseconds;

// time beyond its own limit in which an executor must end
constexpr milliseconds kBeyondDrain{2000};
// Of the pause before a relay is started again, which doubles.
constexpr milliseconds kMostRelayPause{60000};

ExecutorAccount::Time Now() { return std::chrono::steady_clock::now().time_since_epoch(); }

v1::Pulse PulseOf(const std::string& worker) {
  v1::Pulse pulse;
  pulse.set_worker(worker);
  pulse.set_host(HostName());
  pulse.set_pid(::getpid());
  return pulse;
}

}  // namespace

Supervisor::Supervisor(EventLoop& loop, ServiceManager& manager, SupervisorConfig config)
    : loop_(loop),
      manager_(manager),
      config_(std::move(config)),
      incarnation_(RandomIncarnation()),
      account_(config_.restarts),
      link_(loop, config_.controller, config_.tls,
            {.on_open = [this] { Register(); },
             .on_message = [this](v1::FromController message) { OnMessage(std::move(message)); },
             .on_log_frame = nullptr,
             .on_end = [this](const std::string& why, bool) { OnLinkEnd(why); },
             .fill_heartbeat =
                 [this](v1::Heartbeat& to) {
                   FillOwnLoad(to);
                   to.set_executor_starts(executor_starts_);
                   if (compiler_ == nullptr) return;
                   to.set_compile_starts(static_cast<uint64_t>(compiler_->starts()));
                   to.set_compile_crashes(static_cast<uint64_t>(compiler_->crashes()));
                   to.set_compile_processes(compiler_->pids().size());
                 },
             .on_unreachable = [this] { TellWhenReady(/*tried=*/true); }}),
      pulse_(loop, config_.controller, config_.tls, PulseOf(config_.worker)) {}

Supervisor::~Supervisor() = default;

absl::Status Supervisor::Start() {
  if (!config_.compile.argv.empty()) {
    CompilePool::Options options = config_.compile;
    options.env = config_.child_env;
    FAIRWAY_ASSIGN_OR_RETURN(compiler_, CompilePool::Start(std::move(options)));
  }
  loop_.Post("start executor", [this] { StartExecutor(); });
  if (!config_.relay_argv.empty()) loop_.Post("start relay", [this] { StartRelay(); });
  if (config_.tls != nullptr) {
    renewal_ = std::make_unique<CertificateRenewal>(loop_, config_.controller, config_.tls);
    loop_.Post("certificate", [this] { renewal_->Start(); });
  }
  link_.Connect();
  return absl::OkStatus();
}

int Supervisor::Run() {
  loop_.Run();
  executor_ = nullptr;
  relay_ = nullptr;
  compiler_ = nullptr;
  return exit_code_.value_or(kExitInternal);
}

void Supervisor::Exit(int code, std::string why) {
  if (exit_code_.has_value()) return;
  exit_code_ = code;
  if (code == kExitOk) {
    spdlog::info("worker {} ends: {}", config_.worker, why);
  } else {
    spdlog::error("worker {} ends with code {}: {}", config_.worker, code, why);
  }
  if (!registered_ || code == kExitFenced) return loop_.Stop();
  // Close lets the last messages leave.
  link_.Close();
  loop_.PostAfter(kBeyondDrain, "link did not close", [this] { loop_.Stop(); });
}

// ---- The executor ----

void Supervisor::StartExecutor() {
  if (stopping_ || exit_code_.has_value()) return;
  auto child = ExecutorChild::Spawn(
      loop_, config_.executor_argv, config_.child_env, config_.lines,
      [this](const v1::ExecutorStarted& started) { OnExecutorStarted(started); },
      [this](ProcessEnd end) { OnExecutorEnd(end); });
  if (!child.ok()) {
    const milliseconds pause = account_.NotStarted();
    spdlog::error("{}; trying again in {} ms", Text(child.status()), pause.count());
    loop_.PostAfter(pause, "start executor", [this] { StartExecutor(); });
    return;
  }
  executor_ = *std::move(child);
  account_.Started(Now());
  ++executor_starts_;
  spdlog::info("executor started, pid {}", executor_->pid());
}

void Supervisor::OnExecutorStarted(const v1::ExecutorStarted& started) {
  executor_has_devices_ = true;
  TellWhenReady(/*tried=*/started.incarnation() != 0);
  // A target given by --target-config stays.
  if (compiler_ != nullptr && config_.compile.told && config_.compile.target.config().empty()) {
    compiler_->SetTarget(started.target());
  }
}

void Supervisor::TellWhenReady(bool tried) {
  controller_tried_ |= tried;
  if (executor_has_devices_ && controller_tried_) manager_.Ready();
}

void Supervisor::OnExecutorEnd(const ProcessEnd& end) {
  // Posted, because this is a callback of the child: the child is destroyed in a later turn.
  loop_.Post("executor gone", [gone = std::shared_ptr<ExecutorChild>(std::move(executor_))] {});
  executor_has_devices_ = false;
  const ExecutorAccount::Verdict verdict = account_.Ended(end, Now(), stopping_);
  SendDeaths();

  if (stopping_) {
    return Exit(verdict.late ? kExitDrainTimeout : kExitOk,
                verdict.late ? "work in flight did not end in time" : "drained");
  }
  if (verdict.hopeless) return Exit(end.exit_code, fmt::format("the executor {}", verdict.cause));
  spdlog::log(verdict.asked ? spdlog::level::info : spdlog::level::err,
              "executor (pid {}) {}; starting it again in {} ms", end.pid, verdict.cause,
              verdict.restart_in.count());
  loop_.PostAfter(verdict.restart_in, "start executor", [this] { StartExecutor(); });
}

void Supervisor::Drain(std::string why, milliseconds limit) {
  if (stopping_) return;
  stopping_ = true;
  if (limit.count() <= 0) limit = config_.drain_limit;
  spdlog::info("worker {} stops: {}", config_.worker, why);
  manager_.Stopping(limit + 2 * kBeyondDrain);
  if (executor_ == nullptr) return Exit(kExitOk, "drained");
  executor_->Signal(SIGTERM);
  loop_.PostAfter(limit + kBeyondDrain, "drain limit", [this] {
    if (executor_ == nullptr) return;
    account_.KillLate();
    executor_->Signal(SIGKILL);
  });
}

std::string_view Supervisor::NotReady() const {
  if (stopping_ || exit_code_.has_value()) return "ending";
  if (!executor_has_devices_) return "starting";
  return registered_ ? "" : "waiting";
}

void Supervisor::SetLogLevel(const std::string& level) {
  fairway::SetLogLevel(level);
  constexpr std::string_view kFlag = "--log-level=";
  for (std::vector<std::string>* const argv : {&config_.executor_argv, &config_.relay_argv}) {
    for (std::string& word : *argv) {
      if (word.starts_with(kFlag)) word = std::string(kFlag) + level;
    }
  }
  for (const auto& child : {executor_.get(), relay_.get()}) {
    if (child != nullptr) child->Tell(level.front());
  }
}

// ---- The relay ----

void Supervisor::StartRelay() {
  if (exit_code_.has_value()) return;
  const auto again = [this](const std::string& why) {
    spdlog::warn("{}; starting it again in {} ms", why, relay_pause_.count());
    loop_.PostAfter(relay_pause_, "start relay", [this] { StartRelay(); });
    relay_pause_ = std::min(2 * relay_pause_, kMostRelayPause);
  };
  auto child = ExecutorChild::Spawn(
      loop_, config_.relay_argv, config_.child_env, config_.lines, nullptr,
      [this, again, since = std::chrono::steady_clock::now()](const ProcessEnd& end) {
        // Posted, because this is a callback of the child.
        loop_.Post("relay gone", [gone = std::shared_ptr<ExecutorChild>(std::move(relay_))] {});
        if (std::chrono::steady_clock::now() - since > kMostRelayPause)
          relay_pause_ = milliseconds(1000);
        again(fmt::format("the relay (pid {}) {}", end.pid, Cause(end)));
      });
  if (!child.ok()) return again(Text(child.status()));
  relay_ = *std::move(child);
}

// ---- The link ----

void Supervisor::Register() {
  if (exit_code_.has_value()) return;
  v1::ToController message;
  v1::RegisterWorker* to = message.mutable_register_worker();
  SayLinkProtocols(to);
  to->set_worker(config_.worker);
  to->set_island(config_.island);
  to->set_incarnation(incarnation_.value);
  to->set_host(HostName());
  to->set_pid(::getpid());
  to->set_has_compiler(compiler_ != nullptr);
  link_.Send(message);
}

void Supervisor::OnLinkEnd(const std::string& why) {
  registered_ = false;  // the pulse stays: it says that this process lives
  account_.LinkEnded();
  if (exit_code_.has_value()) return loop_.Stop();
  TellWhenReady(/*tried=*/true);
  if (link_.end_is_news()) spdlog::warn("link to {} ended: {}", config_.controller, why);
  link_.Connect();
}

void Supervisor::OnMessage(v1::FromController message) {
  switch (message.message_case()) {
    case v1::FromController::kWorkerRegistered:
      return OnRegistered(message.worker_registered());
    case v1::FromController::kCompileRequest:
      return OnCompile(std::move(*message.mutable_compile_request()));
    case v1::FromController::kKillExecutor:
      return OnKill(message.kill_executor());
    case v1::FromController::kAskRecentLines:
      return OnAskRecentLines(message.ask_recent_lines());
    case v1::FromController::kStopWorker:
      return Drain("the controller says so: " + message.stop_worker().reason(),
                   milliseconds(std::clamp<int64_t>(message.stop_worker().drain_ms(), 0, 3600000)));
    case v1::FromController::kFence:
      return Exit(kExitFenced, "fenced by the controller: " + message.fence().reason());
    default:
      return link_.End("the controller sent a message that is not for supervisors");
  }
}

void Supervisor::OnRegistered(const v1::WorkerRegistered& registered) {
  const absl::StatusOr<uint32_t> protocol = TakenLinkProtocol(registered.protocol());
  if (!protocol.ok()) return link_.End(Text(protocol.status()));
  registered_ = true;
  spdlog::info("worker {} of {} is connected to {}, by link protocol {}", config_.worker,
               config_.island, config_.controller, *protocol);
  SendDeaths();
  pulse_.Start();
  link_.StartHeartbeats(registered.heartbeat_interval_ms(), registered.deadline_ms());
}

void Supervisor::SendDeaths() {
  if (!registered_) return;
  for (v1::ExecutorDied& died : account_.TakeDeaths()) {
    v1::ToController message;
    *message.mutable_executor_died() = std::move(died);
    link_.Send(message);
  }
}

void Supervisor::OnKill(const v1::KillExecutor& kill) {
  if (executor_ == nullptr ||
      !account_.Kill(kill.incarnation(), executor_->incarnation(), kill.reason(), kill.asked()))
    return;
  spdlog::log(kill.asked() ? spdlog::level::info : spdlog::level::warn,
              "killing the executor (pid {}): {}", executor_->pid(), kill.reason());
  executor_->Signal(SIGKILL);
}

void Supervisor::OnAskRecentLines(const v1::AskRecentLines& ask) {
  lines_asked_ = {link_.connection(), ask.id()};
  if (std::exchange(preparing_lines_, true)) return;
  // On another thread: leaving secrets out of so much text takes longer than a turn of the loop.
  redaction_.Run([this, lines = config_.lines] {
    const RecentLines::Tail tail = lines->Get();
    v1::ToController message;
    message.mutable_recent_lines()->set_older(tail.older);
    std::string text = WithoutSecrets(tail.text);
    // What it says instead of secrets may be longer than they were.
    if (text.size() > RecentLines::kBytes) {
      const size_t end = text.find('\n', text.size() - RecentLines::kBytes);
      text.erase(0, end == std::string::npos ? text.size() : end + 1);
      message.mutable_recent_lines()->set_older(true);
    }
    message.mutable_recent_lines()->set_text(std::move(text));
    loop_.Post("recent lines", [this, message = std::move(message)]() mutable {
      preparing_lines_ = false;
      if (lines_asked_.first != link_.connection()) return;
      message.mutable_recent_lines()->set_id(lines_asked_.second);
      link_.Send(message);
    });
  });
}

void Supervisor::OnCompile(v1::LinkCompileRequest request) {
  // On a thread of the compiler: there may be many bytes, and many arguments and results.
  const auto pack = [id = request.id()](absl::StatusOr<CompileResult> result) {
    v1::ToController message;
    v1::LinkCompileResponse* to = message.mutable_compile_response();
    to->set_id(id);
    *to->mutable_status() = ToProto(result.status());
    if (result.ok()) {
      to->set_code(std::move(result->code));
      to->set_checksum(std::move(result->checksum));
      *to->mutable_metadata() = std::move(result->metadata);
    }
    Frame frame = PackFrame(message);
    frame.crc = Crc32c(frame.payload);
    return frame;
  };
  const auto answer = [this, connection = link_.connection()](Frame frame) {
    if (connection == link_.connection()) link_.Send(std::move(frame));
  };
  if (compiler_ == nullptr)
    return answer(pack(absl::UnimplementedError("this worker has no compiler")));
  const milliseconds limit =
      request.deadline_ms() > 0
          ? std::min(milliseconds(request.deadline_ms()), config_.compile_limit)
          : config_.compile_limit;
  compiler_->Compile(std::move(*request.mutable_program()), std::move(*request.mutable_options()),
                     limit, [this, pack, answer](absl::StatusOr<CompileResult> result) {
                       loop_.Post("compiled", [answer, frame = pack(std::move(result))]() mutable {
                         answer(std::move(frame));
                       });
                     });
}

}  // namespace fairway
