// SPDX-License-Identifier: Apache-2.0
#include "bench/scale/controller.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <thread>
#include <utility>

#include <spdlog/spdlog.h>

#include "controller/cluster/arrays.h"
#include "controller/cluster/fleet.h"
#include "worker/compiler/native_compiler.h"

// jemalloc's function; absent where a program is linked with another allocator.
extern "C" int mallctl(const char*, void*, size_t*, void*, size_t) __attribute__((weak));

namespace fairway::scale {
namespace {

constexpr Nanos kLongestPause = 1'000'000;  // between turns that are done again

// Bytes that this thread has allocated and not freed (others may have freed them).
int64_t NetAllocated() {
  if (mallctl == nullptr) return 0;
  static thread_local const auto kCounters = [] {
    std::pair<uint64_t*, uint64_t*> at{nullptr, nullptr};
    size_t size = sizeof at.first;
    mallctl("thread.allocatedp", &at.first, &size, nullptr, 0);
    mallctl("thread.deallocatedp", &at.second, &size, nullptr, 0);
    return at;
  }();
  if (kCounters.first == nullptr || kCounters.second == nullptr) return 0;
  return static_cast<int64_t>(*kCounters.first - *kCounters.second);
}

// The processors that this thread may use, ascending.
std::vector<int> Processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> all;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return all;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) all.push_back(cpu);
  }
  return all;
}

void RunOn(const std::vector<int>& processors) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : processors) CPU_SET(cpu, &set);
  (void)sched_setaffinity(0, sizeof set, &set);
}

}  // namespace

// The hub's end of the link of a host or a relay.
class Controller::HostLink final : public Link {
 public:
  HostLink(Controller* controller, int link) : controller_(controller), link_(link) {}
  void Send(Frame frame) override {
    frame.Join();
    controller_->sent_.emplace_back(link_, std::move(frame));
  }
  size_t queued_bytes() const override { return 0; }
  void Close() override { spdlog::error("scale model: the hub closed link {}", link_); }
  std::string peer() const override { return fmt::format("link{}", link_); }

 private:
  Controller* const controller_;
  const int link_;
};

Controller::Controller(int hosts, int fanout)
    : cluster_(ClusterOptions(), this),
      // Its clock stands still, so versions of the log must not wait for it.
      hub_(loop_,
           {.controller = Incarnation(1),
            .data_endpoint = ":1",
            .unregistered_links = static_cast<size_t>(fanout == 0 ? hosts : 2 * hosts),
            .links = {.version_pause = std::chrono::milliseconds(0),
                      .fanout = static_cast<size_t>(fanout),
                      .controller = Incarnation(1),
                      .secret = [n = 0]() mutable { return fmt::format("{:016}", ++n); }}},
           this, [] { return WorkerHub::Clock::time_point(); }),
      compile_service_(&cluster_, this),
      door_(&cluster_, &compile_service_, {.caps = {}, .server = "scale model"}),
      compiler_(MakeNativeCompiler("sim")) {
  for (int number = 0; number < (fanout == 0 ? hosts : 2 * hosts); ++number) {
    auto link = std::make_unique<HostLink>(this, number);
    links_.push_back(link.get());
    hub_.Accept(std::move(link));
  }
  static const std::vector<int> kAll = Processors();  // before this was called first
  std::vector<int> others = kAll;
  if (others.size() < 2) return;
  thread_.Run([last = others.back()] { RunOn({last}); });
  others.pop_back();
  RunOn(others);
}

Controller::~Controller() = default;

Controller::Turn Controller::Run(const std::vector<Incoming>& in) {
  std::promise<Turn> turn;
  thread_.Run([&] { turn.set_value(RunHere(in)); });
  return turn.get_future().get();
}

absl::StatusOr<Nanos> Controller::Repeat(std::span<const Done> turns, size_t begin) {
  using Clock = std::chrono::steady_clock;
  std::promise<absl::StatusOr<Nanos>> done;
  thread_.Run([&] {
    Nanos cpu = 0;
    Clock::time_point next = Clock::now();
    for (size_t t = 0; t < turns.size(); ++t) {
      if (t > begin) {
        next += std::chrono::nanoseconds(std::min(turns[t].at - turns[t - 1].at, kLongestPause));
        std::this_thread::sleep_until(next);
      } else {
        next = Clock::now();
      }
      const Turn turn = RunHere(turns[t].in);
      if (t >= begin) cpu += turn.cpu;
      if (turn.sent() == turns[t].sent) continue;
      return done.set_value(Error(absl::StatusCode::kInternal,
                                  "turn {} of the controller, done again, sends other frames", t));
    }
    done.set_value(cpu);
  });
  return done.get_future().get();
}

Controller::Sent Controller::Turn::sent() const {
  Sent out{frames.size(), answers.size()};
  for (const auto& [link, frame] : frames) out.bytes += frame.payload.size();
  return out;
}

Controller::Turn Controller::RunHere(const std::vector<Incoming>& in) {
  const int64_t before = NetAllocated();
  std::vector<Incoming> incoming = in;  // allocated here, as by a read, and freed by its user
  Turn turn;
  turn.cpu = MeasureCpu([&] {
    for (Incoming& one : incoming) {
      loop_.Post("message", [this, one = std::move(one)]() mutable {
        if (one.link < 0) return FromClient(one.message);
        links_[static_cast<size_t>(one.link)]->on_frame(std::move(one.frame));
      });
    }
    EndTurn(2);
    loop_.Run();
    // The daemon's loop would do these turns before it slept.
    while (std::exchange(turn_wanted_, false)) cluster_.Turn();
    EndTurn(2);
    loop_.Run();
    if (answers_.answers_size() > 0) {
      packed_answers_ = answers_.SerializeAsString();
      answers_.Clear();
    }
  });
  incoming.clear();
  incoming.shrink_to_fit();
  const int64_t used = NetAllocated();
  turn.frames = sent_;
  turn.answers = packed_answers_;
  const int64_t copied = NetAllocated();
  sent_ = {};
  packed_answers_ = {};
  allocated_ += used - before + (NetAllocated() - copied);
  return turn;
}

void Controller::EndTurn(int rounds) {
  // Work that the messages of this turn have posted runs first, and work that this has posted.
  loop_.Post("end of turn", [this, rounds] {
    if (rounds == 0) return loop_.Stop();
    EndTurn(rounds - 1);
  });
}

void Controller::FromClient(const std::string& bytes) {
  v1::ClientMessage message;
  if (!message.ParseFromString(bytes)) return;
  if (session_ == nullptr) {
    auto session = door_.Open("scale", this);
    if (!session.ok()) return spdlog::error("scale model: {}", Text(session.status()));
    session_ = *session;
  }
  for (v1::Request& request : *message.mutable_requests()) session_->Handle(request);
}

void Controller::Send(ExecutorId executor, Command command, std::shared_ptr<MemoryBudget> payer) {
  hub_.Send(executor, std::move(command), std::move(payer));
}

void Controller::SendAll(ExecutorId first, ExecutorId last, Command command,
                         std::shared_ptr<MemoryBudget> payer) {
  hub_.SendAll(first, last, std::move(command), std::move(payer));
}

void Controller::PullToHost(TransferId transfer, ExecutorId, int32_t, int64_t) {
  loop_.Post("fetch", [this, transfer] {
    cluster_.arrays().FetchArrived(transfer,
                                   absl::UnimplementedError("hosts of the model serve no bytes"));
  });
}

void Controller::WantTurn() { turn_wanted_ = true; }

absl::StatusOr<ExecutorId> Controller::OnExecutorUp(const ExecutorSpec& spec) {
  return cluster_.fleet().ExecutorUp(spec);
}

void Controller::OnExecutorLost(ExecutorId executor, const absl::Status& cause) {
  spdlog::error("scale model: an executor was lost: {}", Text(cause));
  cluster_.fleet().ExecutorLost(executor, cause);
}

void Controller::OnReport(ExecutorId executor, Incarnation incarnation, Report report) {
  cluster_.fleet().OnReport(executor, incarnation, std::move(report));
}

void Controller::OnLaunchesEnded(std::vector<NodeId> nodes) {
  cluster_.fleet().LaunchesEnded(std::move(nodes));
}

void Controller::Compile(SessionId, IslandId, std::shared_ptr<const std::string> program,
                         v1::CompileOptions options,
                         std::function<void(absl::StatusOr<CompiledCode>)> done) {
  absl::StatusOr<CompileResult> made = compiler_->Compile(*program, options);
  absl::StatusOr<CompiledCode> code = CompiledCode();
  if (made.ok()) {
    code = CompiledCode{made->code, made->checksum, made->metadata};
  } else {
    code = made.status();
  }
  loop_.Post("compiled",
             [done = std::move(done), code = std::move(code)]() mutable { done(std::move(code)); });
}

void Controller::Send(v1::Answer answer) { *answers_.add_answers() = std::move(answer); }

void Controller::SendBytes(uint64_t, int32_t, BytesRef) {}

void Controller::RunOffLoop(std::function<void()> work, std::function<void()> then) {
  work();
  loop_.Post("off loop", std::move(then));
}

}  // namespace fairway::scale
