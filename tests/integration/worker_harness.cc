// SPDX-License-Identifier: Apache-2.0
#include "tests/integration/worker_harness.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <thread>

#include <gtest/gtest.h>

#include "async/run_until.h"
#include "log/codec.h"
#include "wire/link_codec.h"

extern char** environ;

namespace fairway::test {
namespace {

constexpr int kHeartbeatMs = 50;
constexpr int kDeadlineMs = 60000;  // nobody is given up because this test got no processor

}  // namespace

bool Alive(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(file, text);
  const size_t name_end = text.rfind(") ");
  return name_end != std::string::npos && text[name_end + 2] != 'Z';
}

std::vector<pid_t> ProcessesWith(const std::string& marker) {
  std::vector<pid_t> out;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream file(entry.path() / "cmdline");
    std::stringstream text;
    text << file.rdbuf();
    const pid_t pid = std::stoi(name);
    if (text.str().find(marker) != std::string::npos && Alive(pid)) out.push_back(pid);
  }
  return out;
}

WorkerProcess::WorkerProcess(const std::vector<std::string>& flags) {
  if (std::getenv("FAIRWAY_PJRT_PLUGIN") == nullptr) {
    std::cerr << "FAIRWAY_PJRT_PLUGIN must name the plugin that the workers load (ctest sets it)\n";
    std::_Exit(1);
  }
  static int counter = 0;
  log_path_ = testing::TempDir() + "/worker_" + std::to_string(::getpid()) + "_" +
              std::to_string(++counter) + ".log";
  int life[2];
  EXPECT_EQ(::pipe2(life, O_CLOEXEC), 0);
  std::vector<std::string> argv = {FAIRWAY_WORKER_BINARY, "--life-fd=3"};
  argv.insert(argv.end(), flags.begin(), flags.end());
  std::vector<char*> pointers;
  for (const std::string& text : argv) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDERR_FILENO, log_path_.c_str(),
                                   O_CREAT | O_WRONLY | O_APPEND, 0600);
  posix_spawn_file_actions_adddup2(&files, life[0], 3);
  posix_spawn_file_actions_addclosefrom_np(&files, 4);
  EXPECT_EQ(::posix_spawn(&pid_, pointers[0], &files, nullptr, pointers.data(), environ), 0);
  posix_spawn_file_actions_destroy(&files);
  ::close(life[0]);
  life_ = life[1];
}

WorkerProcess::~WorkerProcess() {
  if (!Ended().has_value()) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  CloseLifePipe();
  if (testing::Test::HasFailure()) std::cerr << "---- log of worker " << pid_ << "\n" << Log();
  ::unlink(log_path_.c_str());
}

void WorkerProcess::Signal(int number) const { ::kill(pid_, number); }

void WorkerProcess::CloseLifePipe() {
  if (life_ >= 0) ::close(std::exchange(life_, -1));
}

std::optional<int> WorkerProcess::Ended() {
  int status = 0;
  if (!status_.has_value() && ::waitpid(pid_, &status, WNOHANG) == pid_) status_ = status;
  return status_;
}

std::string WorkerProcess::Log() const {
  std::ifstream file(log_path_);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

void SeenExecutor::Send(Command command, uint32_t to) {
  const std::string body = EncodeCommand(command).value();
  EntryHeader header;
  header.number = ++entries;
  header.span = LogSpan::One(to);
  if (body.size() > kMaxEntryBytes) header.flags = kBulkEntry;
  LogFrameWriter writer(/*version=*/1, /*concluded=*/{});
  writer.Add(header, body);
  Frame frame;
  frame.type = kLogFrame;
  frame.payload = writer.Take();
  link->Send(std::move(frame));
}

bool SeenExecutor::Finished(uint64_t seq) const {
  return seq <= report.finished_through ||
         std::find(report.finished.begin(), report.finished.end(), seq) != report.finished.end();
}

absl::Status SeenExecutor::Failure(uint64_t seq) const {
  for (const Report::Failure& failure : report.failures) {
    if (failure.seq == seq) return failure.status;
  }
  return absl::OkStatus();
}

const Report::Installed* SeenExecutor::Installed(ExecutableId id) const {
  for (const Report::Installed& installed : report.installed) {
    if (installed.executable == id) return &installed;
  }
  return nullptr;
}

std::shared_ptr<const Blob> SeenExecutor::Inlined(ShardRef ref) const {
  for (const Report::Inlined& inlined : report.inlined) {
    if (inlined.shard == ref) return inlined.bytes;
  }
  return nullptr;
}

void SeenSupervisor::Send(const v1::FromController& message) const {
  link->Send(PackFrame(message));
}

struct PlayedController::NewPeer {
  std::unique_ptr<Link> link;
};

PlayedController::PlayedController(int port) {
  std::random_device random;
  incarnation_ = Incarnation(uint64_t{random()} << 32 | random() | 1);
  auto data = MakeTcpDataPlane(*loop_, "127.0.0.1:0", "127.0.0.1", incarnation_, data_key_,
                               [this](PullRequest request, DataPlane::Answer answer) {
                                 const auto it = uploads.find({request.transfer, request.index});
                                 if (it == uploads.end())
                                   return answer(absl::NotFoundError("no such upload"));
                                 answer(DataView{it->second->view(), it->second});
                               });
  EXPECT_TRUE(data.ok()) << data.status();
  data_ = *std::move(data);
  auto server = ListenTcp(*loop_, fmt::format("127.0.0.1:{}", port),
                          [this](auto link) { Accept(std::move(link)); });
  EXPECT_TRUE(server.ok()) << server.status();
  server_ = *std::move(server);
}

PlayedController::~PlayedController() {
  executors.clear();
  supervisors.clear();
  new_peers_.clear();
  server_ = nullptr;
  data_ = nullptr;
}

std::string PlayedController::address() const { return fmt::format("127.0.0.1:{}", port()); }

bool PlayedController::Until(std::function<bool()> holds) {
  return RunUntil(*loop_, std::move(holds));
}

void PlayedController::Accept(std::unique_ptr<Link> link) {
  auto peer = std::make_unique<NewPeer>();
  NewPeer& p = *peer;
  p.link = std::move(link);
  p.link->on_frame = [this, &p](Frame frame) { OnFirst(p, std::move(frame)); };
  p.link->on_closed = [](absl::Status) {};
  new_peers_.push_back(std::move(peer));
}

void PlayedController::OnFirst(NewPeer& peer, Frame frame) {
  v1::ToController message;
  ASSERT_TRUE(UnpackFrame(frame, &message).ok());
  v1::FromController reply;
  if (fence_everybody) {
    reply.mutable_fence()->set_reason("this is a test");
    peer.link->Send(PackFrame(reply));
    peer.link->Close();
    return;
  }
  if (message.has_register_executor()) {
    auto seen = std::make_unique<SeenExecutor>();
    SeenExecutor& executor = *seen;
    executor.link = std::move(peer.link);
    executor.registration = message.register_executor();
    auto spec = ExecutorSpecFromProto(executor.registration.spec());
    ASSERT_TRUE(spec.ok()) << spec.status();
    executor.spec = *std::move(spec);
    executor.link->on_frame = [this, &executor](Frame f) {
      OnExecutorFrame(executor, std::move(f));
    };
    executor.link->on_closed = [&executor](absl::Status how) {
      executor.closed = true;
      executor.how = std::move(how);
    };
    executors.push_back(std::move(seen));
    v1::Registered* registered = reply.mutable_registered();
    registered->set_controller_incarnation(incarnation_.value);
    registered->set_executor(kExecutorId);
    registered->set_heartbeat_interval_ms(kHeartbeatMs);
    registered->set_deadline_ms(kDeadlineMs);
    const std::string endpoint = data_->endpoint();
    registered->set_data_endpoint(endpoint.substr(endpoint.rfind(':')));
    executor.link->Send(PackFrame(reply));
    return;
  }
  if (message.has_pulse()) return;  // the link stays open as it is
  ASSERT_TRUE(message.has_register_worker());
  auto seen = std::make_unique<SeenSupervisor>();
  SeenSupervisor& supervisor = *seen;
  supervisor.link = std::move(peer.link);
  supervisor.registration = message.register_worker();
  supervisor.link->on_frame = [this, &supervisor](Frame f) {
    OnSupervisorFrame(supervisor, std::move(f));
  };
  supervisor.link->on_closed = [&supervisor](absl::Status) { supervisor.closed = true; };
  supervisors.push_back(std::move(seen));
  v1::WorkerRegistered* registered = reply.mutable_worker_registered();
  registered->set_controller_incarnation(incarnation_.value);
  registered->set_heartbeat_interval_ms(kHeartbeatMs);
  registered->set_deadline_ms(kDeadlineMs);
  supervisor.Send(reply);
}

void SeenExecutor::Answer(const CallbackAnswer& answer) const {
  v1::FromController message;
  ToProto(answer, message.mutable_callback_answer());
  link->Send(PackFrame(message));
}

void PlayedController::OnExecutorFrame(SeenExecutor& from, Frame frame) {
  if (frame.type == kLogReportFrame) {
    ASSERT_TRUE(DecodeLogReport(frame.payload).ok());
    return;
  }
  v1::ToController message;
  ASSERT_TRUE(UnpackFrame(frame, &message).ok());
  if (message.has_heartbeat()) {
    from.heartbeat = message.heartbeat();
    ++from.heartbeats;
    v1::FromController reply;
    reply.mutable_heartbeat_ack()->set_sequence(from.heartbeat.sequence());
    from.link->Send(PackFrame(reply));
    return;
  }
  if (message.has_callback()) {
    auto call = CallbackFromProto(message.callback());
    ASSERT_TRUE(call.ok()) << call.status();
    return from.callbacks.push_back(*std::move(call));
  }
  if (message.has_callback_given_up())
    return from.given_up.push_back(message.callback_given_up().call());
  ASSERT_TRUE(message.has_report());
  EXPECT_EQ(message.report().incarnation(), from.spec.incarnation.value);
  auto report = ReportFromProto(message.report());
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_GE(report->finished_through, from.report.finished_through);
  from.report.finished_through = report->finished_through;
  const auto append = [](auto& to, auto& more) {
    to.insert(to.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
  };
  append(from.report.finished, report->finished);
  append(from.report.failures, report->failures);
  append(from.report.inlined, report->inlined);
  append(from.report.installed, report->installed);
}

void PlayedController::OnSupervisorFrame(SeenSupervisor& from, Frame frame) {
  v1::ToController message;
  ASSERT_TRUE(UnpackFrame(frame, &message).ok());
  if (message.has_heartbeat()) {
    ++from.heartbeats;
    v1::FromController reply;
    reply.mutable_heartbeat_ack()->set_sequence(message.heartbeat().sequence());
    from.Send(reply);
  } else if (message.has_executor_died()) {
    from.deaths.push_back(message.executor_died());
  } else if (message.has_compile_response()) {
    from.compiled[message.compile_response().id()] = message.compile_response();
  } else {
    ADD_FAILURE() << message.ShortDebugString();
  }
}

SeenExecutor* PlayedController::WaitForExecutor(const std::string& worker, size_t count) {
  SeenExecutor* found = nullptr;
  Until([&] {
    size_t seen = 0;
    for (const auto& executor : executors) {
      if (executor->spec.worker == worker && ++seen == count && executor->heartbeats > 0)
        found = executor.get();
    }
    return found != nullptr;
  });
  EXPECT_NE(found, nullptr) << "no executor of " << worker << " registered";
  return found;
}

SeenSupervisor* PlayedController::WaitForSupervisor(const std::string& worker, size_t count) {
  SeenSupervisor* found = nullptr;
  Until([&] {
    size_t seen = 0;
    for (const auto& supervisor : supervisors) {
      if (supervisor->registration.worker() == worker && ++seen == count) found = supervisor.get();
    }
    return found != nullptr;
  });
  EXPECT_NE(found, nullptr) << "no supervisor of " << worker << " registered";
  return found;
}

v1::LinkCompileResponse PlayedController::Compile(SeenSupervisor& at, const std::string& program,
                                                  const v1::CompileOptions& options) {
  const uint64_t id = next_compile_++;
  v1::FromController message;
  v1::LinkCompileRequest* request = message.mutable_compile_request();
  request->set_id(id);
  request->set_program(program);
  *request->mutable_options() = options;
  request->set_deadline_ms(60000);
  at.Send(message);
  EXPECT_TRUE(Until([&] { return at.compiled.contains(id); }));
  return at.compiled[id];
}

absl::StatusOr<std::shared_ptr<Blob>> PlayedController::Fetch(const SeenExecutor& from,
                                                              TransferId transfer, int32_t index,
                                                              int64_t bytes) {
  return FetchWith(TicketFor(from.spec.data_key, transfer, incarnation_), from, transfer, index,
                   bytes);
}

absl::StatusOr<std::shared_ptr<Blob>> PlayedController::FetchWith(const Ticket& ticket,
                                                                  const SeenExecutor& from,
                                                                  TransferId transfer,
                                                                  int32_t index, int64_t bytes) {
  std::optional<absl::StatusOr<std::shared_ptr<Blob>>> got;
  data_->Pull(from.spec.data_endpoint, from.spec.incarnation,
              {transfer, index, Incarnation(), 0, ticket}, bytes,
              [&](absl::StatusOr<std::shared_ptr<Blob>> blob) { got = std::move(blob); });
  if (!Until([&] { return got.has_value(); }))
    return absl::DeadlineExceededError("waited two minutes in a test");
  return *std::move(got);
}

}  // namespace fairway::test
