// SPDX-License-Identifier: Apache-2.0
#include "worker/executor/executor_process.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include <spdlog/spdlog.h>

#include "async/timed.h"
#include "base/host.h"
#include "wire/link_codec.h"
#include "worker/compiler/compile_wire.h"
#include "worker/process/exit_codes.h"
#include "worker/process/take_revocations.h"

namespace fairway {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLookAgain{20};
constexpr int kBlockingThreads = 4;
constexpr size_t kMostQueued = 1 << 20;  // bytes of log reports for a relay

Registration::Time LinkTime() { return std::chrono::steady_clock::now().time_since_epoch(); }

}  // namespace

ExecutorProcess::ExecutorProcess(EventLoop& loop, ExecutorConfig config, Runtime* runtime)
    : loop_(loop),
      config_(std::move(config)),
      runtime_(runtime),
      blocking_("fairway-block", kBlockingThreads),
      launches_(runtime, runtime->info().num_devices),
      link_(loop, config_.controller, config_.tls,
            {.on_open = [this] { OnOpen(); },
             .on_message = [this](v1::FromController message) { OnMessage(std::move(message)); },
             .on_log_frame = [this](const Frame& frame) { OnLogFrame(frame.payload, false); },
             .on_end = [this](const std::string& why, bool cut) { OnLinkEnd(why, cut); },
             .fill_heartbeat = [this](v1::Heartbeat& to) { FillHeartbeat(to); },
             .stamp = [this](Frame& frame) { registration_.Stamp(frame); },
             .taken = [this](const Frame& frame) { return registration_.Taken(frame); }}),
      parent_(loop, config_.tls,
              {.on_open =
                   [this](Link* link) {
                     v1::ToController message;
                     *message.mutable_log_ask() = registration_.AskLog(session_->incarnation());
                     link->Send(PackFrame(message));
                   },
               .on_frame = [this](const Frame& frame) { OnLogFrame(frame.payload, true); },
               .on_end = [](Link*) {}}) {}

ExecutorProcess::~ExecutorProcess() { runtime_->WhenLost(nullptr); }

void ExecutorProcess::Start() {
  for (int i = 0; runtime_->info().memory_waits && i < runtime_->info().num_devices; ++i) {
    buffer_makers_.push_back(std::make_unique<BlockingPool>("fairway-put" + std::to_string(i), 1));
  }
  runtime_->WhenLost([this](absl::Status why) {
    loop_.Post("devices lost", [this, why = std::move(why)] { Exit(kExitDevicesLost, Text(why)); });
  });
  if (absl::Status status = TellSupervisor(0); !status.ok())
    return Exit(kExitInternal, Text(status));
  link_.Connect();
}

int ExecutorProcess::Run() {
  loop_.Run();
  return exit_code_.value_or(kExitInternal);
}

void ExecutorProcess::Exit(int code, std::string why) {
  if (exit_code_.has_value()) return;
  exit_code_ = code;
  if (code == kExitOk || code == kExitAsked) {
    spdlog::info("executor ends: {}", why);
  } else {
    spdlog::error("executor ends with code {}: {}", code, why);
  }
  loop_.Stop();
}

void ExecutorProcess::OnOpen() {
  if (draining_ || exit_code_.has_value()) return;
  if (registration_.cut()) {
    v1::ToController message;
    *message.mutable_resume_executor() = registration_.Resume(session_->incarnation());
    return link_.Send(message);
  }
  if (absl::Status status = Register(); !status.ok()) {
    Exit(status.code() == absl::StatusCode::kAlreadyExists ? kExitPortTaken : kExitInternal,
         Text(status));
  }
}

absl::Status ExecutorProcess::TellSupervisor(uint64_t incarnation) {
  if (config_.life_fd < 0) return absl::OkStatus();
  const RuntimeInfo& info = runtime_->info();
  v1::ExecutorStarted started;
  started.set_incarnation(incarnation);
  if (!info.target_config.empty()) {
    started.mutable_target()->set_config(info.target_config);
    started.mutable_target()->set_host_machine(info.host_machine);
  }
  FAIRWAY_ASSIGN_OR_RETURN(const std::string frame, FrameOf(started));
  // The socket has room for many such frames; the write does not block.
  [[maybe_unused]] const auto written = ::write(config_.life_fd, frame.data(), frame.size());
  return absl::OkStatus();
}

absl::Status ExecutorProcess::Register() {
  const Incarnation incarnation = RandomIncarnation();
  client_calls_ = MakeClientCalls(incarnation);
  launches_.set_host_calls(client_calls_);
  std::vector<BlockingPool*> buffer_makers;
  for (const auto& pool : buffer_makers_) buffer_makers.push_back(pool.get());
  FAIRWAY_ASSIGN_OR_RETURN(
      session_,
      ExecutorSession::Open({&loop_, runtime_, &blocking_, &launches_, config_.island_workers,
                             client_calls_, buffer_makers, config_.tls},
                            incarnation, config_.data_bind, AdvertisedHost(),
                            [this](Report report) { SendReport(report); }));
  FAIRWAY_RETURN_IF_ERROR(TellSupervisor(incarnation.value));
  const RuntimeInfo& info = runtime_->info();
  ExecutorSpec spec;
  spec.worker = config_.worker;
  spec.island = config_.island;
  spec.island_workers = config_.island_workers;
  spec.incarnation = incarnation;
  spec.runtime = info.name;
  spec.platform_name = info.platform_name;
  spec.platform_version = info.platform_version;
  spec.device_kind = info.device_kind;
  spec.memory_kinds = info.memory_kinds;
  spec.num_devices = info.num_devices;
  spec.device_memory = config_.device_memory > 0 ? config_.device_memory : info.device_memory;
  spec.gang_inputs = info.gang_inputs;
  spec.highest_launch_id = registration_.Ask();
  spec.data_endpoint = session_->data_endpoint();
  spec.data_key = session_->data_key();
  v1::ToController message;
  v1::RegisterExecutor* to = message.mutable_register_executor();
  SayLinkProtocols(to);
  ToProto(spec, to->mutable_spec());
  to->set_host(HostName());
  to->set_pid(::getpid());
  to->set_stablehlo_current(info.stablehlo_current);
  to->set_stablehlo_minimum(info.stablehlo_minimum);
  link_.Send(message);
  return absl::OkStatus();
}

std::string ExecutorProcess::AdvertisedHost() const {
  if (!config_.advertise_host.empty()) return config_.advertise_host;
  const std::string host = config_.data_bind.substr(0, config_.data_bind.rfind(':'));
  return host == "0.0.0.0" || host == "[::]" || host.empty() ? HostName() : host;
}

std::string ExecutorProcess::Absolute(const std::string& controller_endpoint) const {
  if (!controller_endpoint.starts_with(':')) return controller_endpoint;
  return config_.controller.substr(0, config_.controller.rfind(':')) + controller_endpoint;
}

void ExecutorProcess::OnMessage(v1::FromController message) {
  switch (message.message_case()) {
    case v1::FromController::kRegistered:
      return OnRegistered(message.registered());
    case v1::FromController::kResumed:
      return OnResumed(message.resumed());
    case v1::FromController::kNotResumed:
      return link_.End("the controller does not go on: " + message.not_resumed().reason());
    case v1::FromController::kLogParent:
      return OnParent(message.log_parent());
    case v1::FromController::kCallbackAnswer:
      return OnCallbackAnswer(message.callback_answer());
    case v1::FromController::kRevokedWorkers:
      if (const auto taken = TakeRevocations(message.revoked_workers(), config_.tls.get());
          !taken.ok())
        return link_.End(Text(taken));
      return;
    case v1::FromController::kFence:
      if (message.fence().asked()) return Exit(kExitAsked, message.fence().reason());
      return Exit(kExitFenced, "fenced by the controller: " + message.fence().reason());
    default:
      return link_.End("the controller sent a message that is not for executors");
  }
}

void ExecutorProcess::OnRegistered(const v1::Registered& registered) {
  const absl::Status accepted = registration_.Accepted(registered);
  if (!accepted.ok()) return link_.End(Text(accepted));
  session_->SetController(Absolute(registered.data_endpoint()),
                          Incarnation(registered.controller_incarnation()));
  spdlog::info("registered at {} as executor {}: {} {} devices, data port {}", config_.controller,
               registered.executor(), runtime_->info().num_devices, runtime_->info().device_kind,
               session_->data_endpoint());
  link_.StartHeartbeats(registered.heartbeat_interval_ms(), registered.deadline_ms());
}

void ExecutorProcess::OnResumed(const v1::Resumed& resumed) {
  absl::StatusOr<std::vector<Frame>> again = registration_.Resumed(resumed);
  if (!again.ok()) return link_.End(Text(again.status()));
  spdlog::info("connected to {} again", config_.controller);
  for (Frame& frame : *again) link_.Send(std::move(frame));
  SendLogReport(CommandInbox::With::kNothing);
  link_.ResumeHeartbeats();
}

void ExecutorProcess::SendKept(const v1::ToController& message) {
  Frame frame = registration_.Keep(PackFrame(message));
  if (registration_.held()) link_.Send(std::move(frame));
}

void ExecutorProcess::OnParent(const v1::LogParent& parent) {
  if (!registration_.Follow(parent)) return;
  spdlog::debug("the log comes from {} in version {}",
                parent.endpoint().empty() ? "the controller" : parent.endpoint(), parent.version());
  parent_.Follow(registration_.relay());
  if (session_ != nullptr) session_->ReportsBelow(registration_.relay_children());
  if (!registration_.relay().empty()) return;
  v1::ToController message;
  *message.mutable_log_ask() = registration_.AskLog(session_->incarnation());
  SendKept(message);
}

void ExecutorProcess::OnLogFrame(const std::string& frame, bool relay) {
  if (draining_) return;
  absl::StatusOr<std::vector<Command>> commands = registration_.Take(frame, relay);
  if (!commands.ok())
    return relay ? parent_.End(Text(commands.status())) : link_.End(Text(commands.status()));
  for (Command& command : *commands) {
    if (const auto* abandon = std::get_if<AbandonLaunch>(&command))
      client_calls_->Abandon(abandon->first, abandon->last, abandon->cause);
    session_->OnCommand(std::move(command));
  }
  SendLogReport(CommandInbox::With::kNothing);
}

std::shared_ptr<ClientCalls> ExecutorProcess::MakeClientCalls(Incarnation incarnation) {
  // The next registration knows nothing of these calls.
  const auto post = [this, incarnation](v1::ToController message) {
    loop_.Post("callback", [this, incarnation, message = std::move(message)] {
      if (Lasts(incarnation)) SendKept(message);
    });
  };
  return std::make_shared<ClientCalls>(
      ClientCalls::Handler{.send =
                               [post](const CallbackCall& call) {
                                 v1::ToController message;
                                 ToProto(call, message.mutable_callback());
                                 post(std::move(message));
                               },
                           .give_up =
                               [post](uint64_t call) {
                                 v1::ToController message;
                                 message.mutable_callback_given_up()->set_call(call);
                                 post(std::move(message));
                               }});
}

void ExecutorProcess::OnCallbackAnswer(const v1::LinkCallbackAnswer& answer) {
  if (client_calls_ == nullptr) return;
  auto decoded = CallbackAnswerFromProto(answer);
  if (!decoded.ok()) decoded = CallbackAnswer{answer.call(), decoded.status(), {}, {}, {}};
  if (decoded->transfer && decoded->status.ok()) return PullResults(*std::move(decoded));
  client_calls_->Answered(*std::move(decoded));
}

void ExecutorProcess::PullResults(CallbackAnswer answer) {
  const auto wanted = client_calls_->Wanted(answer.call);
  if (!wanted.has_value() || session_ == nullptr) return SendGivenUp(answer.call);
  struct Gathering {
    CallbackAnswer answer;
    size_t open = 1;
  };
  auto gathering = std::make_shared<Gathering>();
  gathering->answer = std::move(answer);
  gathering->answer.results.resize(wanted->size());
  const auto arrive = [this, incarnation = session_->incarnation(), calls = client_calls_,
                       gathering] {
    if (--gathering->open > 0) return;
    // The controller keeps results that are not pulled until SendGivenUp.
    if (!gathering->answer.status.ok() && Lasts(incarnation)) SendGivenUp(gathering->answer.call);
    calls->Answered(std::move(gathering->answer));
  };
  for (size_t i = 0; i < wanted->size(); ++i) {
    if (wanted->at(i) == 0) {
      gathering->answer.results[i] = Blob::Make(0);
      continue;
    }
    ++gathering->open;
    session_->PullResult(gathering->answer, static_cast<int32_t>(i), wanted->at(i),
                         [gathering, arrive, i](absl::StatusOr<std::shared_ptr<Blob>> bytes) {
                           CallbackAnswer& to = gathering->answer;
                           if (bytes.ok()) {
                             to.results[i] = *std::move(bytes);
                           } else if (to.status.ok()) {
                             to.status = Annotate(bytes.status(), "the results of a callback");
                           }
                           arrive();
                         });
  }
  arrive();
}

void ExecutorProcess::SendGivenUp(uint64_t call) {
  v1::ToController message;
  message.mutable_callback_given_up()->set_call(call);
  SendKept(message);
}

bool ExecutorProcess::Lasts(Incarnation incarnation) const {
  return session_ != nullptr && session_->incarnation() == incarnation && !registration_.ending();
}

void ExecutorProcess::SendReport(const Report& report) {
  if (session_ == nullptr) return;
  if (const absl::Status ended = registration_.Ended(report.ended); !ended.ok())
    return link_.End(Text(ended));
  if (report.news) {
    v1::ToController message;
    ToProto(report, session_->incarnation(), message.mutable_report());
    SendKept(message);
  }
  SendLogReport(CommandInbox::With::kReport);
}

void ExecutorProcess::SendLogReport(CommandInbox::With with) {
  const bool relayed = !registration_.relay().empty();
  // A relay that takes nothing is replaced.
  if (relayed && (parent_.link() == nullptr || parent_.link()->queued_bytes() > kMostQueued))
    return;
  Frame frame;
  frame.type = kLogReportFrame;
  frame.payload = registration_.LogReport(with);
  if (frame.payload.empty()) return;
  relayed ? parent_.link()->Send(std::move(frame)) : link_.Send(std::move(frame));
}

void ExecutorProcess::FillHeartbeat(v1::Heartbeat& to) {
  if (session_ == nullptr) return;
  SendLogReport(CommandInbox::With::kHeartbeat);
  const ExecutorSession::Counters counters = session_->counters();
  for (const auto& [endpoint, bytes] : counters.pulled) {
    auto* pulled = to.add_pulled();
    pulled->set_endpoint(endpoint);
    pulled->set_bytes(bytes);
  }
  to.set_served_bytes(counters.served_bytes);
  to.set_fetches_served(counters.fetches_served);
  for (const int64_t bytes : counters.device_bytes) to.add_device_bytes(bytes);
  to.set_gangs_launched(counters.gangs_launched);
  to.set_launches(counters.launches);
  to.set_buffers(counters.buffers);
  to.set_executables(counters.executables);
  to.set_crowded(*crowded_);
  FillOwnLoad(to);
  to.set_turn_units_max(counters.turn_units_max);
  to.set_handler_cpu_ns_max(static_cast<uint64_t>(LongestHandlerHere().processor.count()));
  // XLA's code for CPUs takes some five mappings for each kernel. The next heartbeat reports the
  // result:
  blocking_.Run([crowded = crowded_, most = config_.max_mappings] {
    const MemoryMappings mappings = CountMemoryMappings();
    const int64_t limit = most > 0 ? most : mappings.most / 2;
    *crowded = limit > 0 && mappings.used > limit;
  });
}

void ExecutorProcess::OnLinkEnd(const std::string& why, bool cut) {
  if (!cut || draining_ || !registration_.Cut(LinkTime())) return EndRegistration(why);
  spdlog::warn("the connection to {} broke: {}", config_.controller, why);
  link_.Connect();
  loop_.PostAfter(registration_.grace(), "link grace", [this, why] {
    if (!registration_.GraceOver(LinkTime())) return;
    link_.StopConnecting();
    EndRegistration(why);
  });
}

void ExecutorProcess::EndRegistration(const std::string& why) {
  if (!draining_ && link_.end_is_news()) spdlog::warn("registration ends: {}", why);
  if (client_calls_ != nullptr)
    client_calls_->Close(absl::UnavailableError("the executor lost its controller: " + why));
  registration_.End();
  parent_.Follow({});
  if (session_ != nullptr) session_->Drain();
  if (draining_) return Exit(kExitOk, "drained; the controller is gone");
  WaitForLaunches();
}

void ExecutorProcess::WaitForLaunches() {
  const bool over = session_ == nullptr ? registration_.Over(0, 0)
                                        : registration_.Over(session_->launches_in_flight(),
                                                             session_->highest_launch_id());
  if (!over) {
    session_->EndReceives();  // commands that had come before are handled in turns
    loop_.PostAfter(kLookAgain, "launches in flight", [this] { WaitForLaunches(); });
    return;
  }
  session_ = nullptr;
  if (draining_) return Exit(kExitOk, "drained");
  link_.Connect();
}

void ExecutorProcess::Drain() {
  if (draining_) return;
  draining_ = true;
  drain_until_ = Clock::now() + config_.drain_limit;
  spdlog::info("stopping: {} launches in flight",
               session_ == nullptr ? 0 : session_->launches_in_flight());
  CheckDrained();
}

void ExecutorProcess::CheckDrained() {
  if (!link_.connected() && session_ == nullptr) return Exit(kExitOk, "drained");
  if (session_ != nullptr && session_->launches_in_flight() > 0) {
    if (Clock::now() > drain_until_) {
      return Exit(kExitDrainTimeout,
                  fmt::format("{} launches did not end within {} ms",
                              session_->launches_in_flight(), config_.drain_limit.count()));
    }
    session_->EndReceives();
    loop_.PostAfter(kLookAgain, "draining", [this] { CheckDrained(); });
    return;
  }
  if (!link_.connected()) return Exit(kExitOk, "drained");
  // Runs in one more turn, for the last reports; Close sends them before on_closed comes.
  loop_.Post("close link", [this] { link_.Close(); });
}

}  // namespace fairway
