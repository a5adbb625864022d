// SPDX-License-Identifier: Apache-2.0
#include "worker/compiler/compile_pool.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <deque>
#include <functional>
#include <list>
#include <mutex>
#include <optional>
#include <thread>

#include "base/log.h"
#include "fairway/v1/compiler.pb.h"
#include "worker/compiler/child.h"
#include "worker/compiler/compile_failure.h"
#include "worker/compiler/compile_wire.h"

namespace fairway {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kReapAgain{20};

// One program to compile.
struct Job {
  std::string program;
  std::string title;
  v1::CompileOptions options;
  std::optional<Clock::time_point> deadline;
  std::chrono::milliseconds limit{0};
  CompilePool::Done done;

  bool Late(Clock::time_point now) const { return deadline.has_value() && *deadline <= now; }
};

// One process of the pool.
struct Process {
  Child child;
  Clock::time_point ready_by;
  bool ready = false;      // it has said that it is ready
  bool retired = false;    // it gets no more programs
  int programs = 0;        // programs that it has answered
  std::optional<Job> job;  // the program that it is compiling
  // Of its programs; nullopt: it has had none, and anyone's may come.
  std::optional<std::string> tenant;
  uint64_t last_use = 0;
  std::string out;
  size_t sent = 0;
  FrameBuffer in;

  // Whether it should have said by now that it is ready.
  bool Hangs(Clock::time_point now) const { return !ready && !retired && ready_by <= now; }
  bool idle() const { return ready && !retired && !job.has_value(); }
  bool Serves(const std::string& whose) const {
    return idle() && (!tenant.has_value() || *tenant == whose);
  }
};

}  // namespace

// The thread that owns the processes and all jobs. Other threads only add to inbox_ and wake it.
class CompilePool::Loop {
 public:
  Loop(Options options, Child first)
      : options_(std::move(options)),
        wake_fd_(eventfd(0, EFD_CLOEXEC)),
        starts_(first.running() ? 1 : 0),
        target_(options_.target) {
    if (first.running()) Add(std::move(first));
    thread_ = std::thread([this] { Run(); });
  }

  ~Loop() {
    stop_ = true;
    Wake();
    thread_.join();
    close(wake_fd_);
  }

  void Add(Job job) {
    {
      std::lock_guard lock(mutex_);
      inbox_.push_back(std::move(job));
    }
    Wake();
  }

  void SetTarget(v1::CompileTarget target) {
    {
      std::lock_guard lock(mutex_);
      new_target_ = std::move(target);
    }
    Wake();
  }

  std::vector<int> pids() const {
    std::lock_guard lock(mutex_);
    return pids_;
  }
  int starts() const { return starts_; }
  int crashes() const { return crashes_; }

 private:
  void Wake() {
    const uint64_t one = 1;
    (void)!write(wake_fd_, &one, sizeof(one));
  }

  void Run() {
    while (!stop_) {
      TakeInbox();
      Expire();
      Assign();
      Refill();
      Wait();
      for (Process& process : processes_) Exchange(process);
      Clear();
    }
    TakeInbox();
    const auto cancelled = Error(absl::StatusCode::kCancelled, "the worker is being shut down");
    for (Process& process : processes_) {
      if (process.job.has_value()) Finish(process, cancelled);
    }
    FailQueue(cancelled);
    processes_.clear();
    ending_.clear();
  }

  void TakeInbox() {
    std::lock_guard lock(mutex_);
    if (new_target_.has_value()) TakeTarget(*std::exchange(new_target_, std::nullopt));
    if (!inbox_.empty()) hold_ = false;
    for (Job& job : inbox_) queue_.push_back(std::move(job));
    inbox_.clear();
  }

  // Processes that have another target get no more programs; those that are compiling finish.
  void TakeTarget(v1::CompileTarget target) {
    if (target.SerializeAsString() == target_.SerializeAsString()) return;
    target_ = std::move(target);
    hold_ = false;
    for (Process& process : processes_) {
      process.programs = options_.programs;
      if (!process.job.has_value()) process.retired = true;
    }
  }

  void Expire() {
    const Clock::time_point now = Clock::now();
    for (auto it = queue_.begin(); it != queue_.end();) {
      if (!it->Late(now)) {
        ++it;
        continue;
      }
      std::move(it->done)(CompileTooLate(it->limit, false, it->title));
      it = queue_.erase(it);
    }
    for (Process& process : processes_) {
      if (process.Hangs(now)) {
        spdlog::warn(
            "compile process {} has not said within {} ms that it is ready; it is killed, and "
            "another one starts",
            process.child.pid(), options_.ready_within.count());
        process.retired = true;
        ++crashes_;
      }
      if (!process.job.has_value() || !process.job->Late(now)) continue;
      const absl::Status late = CompileTooLate(process.job->limit, true, process.job->title);
      spdlog::warn("compile process {} killed: {}", process.child.pid(), Text(late));
      process.retired = true;
      ++crashes_;
      Finish(process, late);
    }
    Clear();
  }

  int Busy() const {
    return static_cast<int>(std::count_if(processes_.begin(), processes_.end(),
                                          [](const Process& p) { return p.job.has_value(); }));
  }

  // Gives programs to free processes, until no process is free for a program that waits. Sends
  // nothing: a process that answered here would be free again while programs wait.
  void Assign() {
    for (auto it = queue_.begin(); it != queue_.end() && Busy() < options_.parallel;) {
      Process* const process = FreeFor(it->options.tenant());
      if (process == nullptr) {
        ++it;
        continue;
      }
      Job job = std::move(*it);
      it = queue_.erase(it);
      Give(*process, std::move(job));
    }
    RetireUnused();
  }

  // A process that compiled for `tenant` before, or else one that compiled nothing.
  Process* FreeFor(const std::string& tenant) {
    Process* found = nullptr;
    for (Process& process : processes_) {
      if (!process.Serves(tenant)) continue;
      if (process.tenant.has_value()) return &process;
      if (found == nullptr) found = &process;
    }
    return found;
  }

  // `process` stays free if the program is too long.
  void Give(Process& process, Job job) {
    v1::CompileRequest request;
    request.set_id(kProgramId);
    request.set_program(std::move(job.program));
    process.tenant = job.options.tenant();
    if (!first_tenant_.has_value()) first_tenant_ = process.tenant;
    several_tenants_ |= process.tenant != first_tenant_;
    process.last_use = ++uses_;
    *request.mutable_options() = std::move(job.options);
    request.set_deadline_ms(job.limit.count());
    process.job = std::move(job);
    auto frame = FrameOf(request);
    if (!frame.ok()) return Finish(process, frame.status());
    process.out = *std::move(frame);
    process.sent = 0;
  }

  // Of the processes that wait for a program of their tenant, only the last ones used are kept.
  void RetireUnused() {
    std::vector<Process*> kept;
    for (Process& process : processes_) {
      if (process.idle() && process.tenant.has_value()) kept.push_back(&process);
    }
    std::ranges::sort(kept, std::ranges::greater(), &Process::last_use);
    for (size_t i = static_cast<size_t>(options_.parallel); i < kept.size(); ++i)
      kept[i]->retired = true;
    if (kept.size() > static_cast<size_t>(options_.parallel)) Clear();
  }

  // Starts processes for waiting programs, and keeps options_.warm of them ready.
  void Refill() {
    if (options_.told && target_.config().empty()) return;
    // A program must not wait for ever when the last process that it could wait for is gone.
    const auto may_wait = [this](const Job& job) { return MayWait(job); };
    if (hold_ && std::ranges::all_of(queue_, may_wait)) return;
    const auto starting = std::count_if(processes_.begin(), processes_.end(),
                                        [](const Process& p) { return !p.ready; });
    // While all programs are of one tenant, the processes that it had are ready for its next ones.
    const bool any = !several_tenants_ && queue_.empty();
    const auto free =
        starting + std::count_if(processes_.begin(), processes_.end(), [any](const Process& p) {
          return p.idle() && (any || !p.tenant.has_value());
        });
    const auto needed = std::min<int64_t>(queue_.size(), options_.parallel - Busy());
    // Starts them one after another unless a program waits, because starting takes the processor
    // from others.
    if (free >= needed && (free >= options_.warm || starting > 0)) return;
    for (auto i = free; i < std::max<int64_t>(needed, free + 1); ++i) {
      auto child = Child::Spawn(options_.argv, CompileEnvironment(options_.env));
      if (!child.ok()) return NoProcess(std::move(child).status());
      Add(*std::move(child));
      ++starts_;
    }
  }

  void Add(Child child) {
    Process& process = processes_.emplace_back();
    process.child = std::move(child);
    process.ready_by = Clock::now() + options_.ready_within;
    if (options_.told) {
      v1::CompileRequest first;
      first.set_id(kReadyId);
      *first.mutable_target() = target_;
      process.out = *FrameOf(first);
    }
    KeepPids();
  }

  void KeepPids() {
    std::lock_guard lock(mutex_);
    pids_.clear();
    for (const Process& process : processes_) pids_.push_back(process.child.pid());
  }

  void Wait() {
    std::vector<pollfd> fds = {{wake_fd_, POLLIN, 0}};
    std::optional<Clock::time_point> next;
    const auto consider = [&](const std::optional<Clock::time_point>& deadline) {
      if (deadline.has_value() && (!next.has_value() || *deadline < *next)) next = deadline;
    };
    for (const Job& job : queue_) consider(job.deadline);
    for (const Process& process : processes_) {
      const bool writes = process.sent < process.out.size();
      fds.push_back({process.child.fd(), static_cast<short>(POLLIN | (writes ? POLLOUT : 0)), 0});
      if (process.job.has_value()) consider(process.job->deadline);
      if (!process.ready) consider(process.ready_by);
    }
    int timeout = ending_.empty() ? -1 : static_cast<int>(kReapAgain.count());
    if (next.has_value()) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(*next - Clock::now());
      const int until = static_cast<int>(std::clamp<int64_t>(left.count(), 0, 60'000));
      timeout = timeout < 0 ? until : std::min(timeout, until);
    }
    poll(fds.data(), fds.size(), timeout);
    if ((fds[0].revents & POLLIN) != 0) {
      uint64_t count;
      (void)!read(wake_fd_, &count, sizeof(count));
    }
  }

  // Sends the rest of the request and reads the bytes that the process has written.
  void Exchange(Process& process) {
    if (process.retired) return;
    while (process.sent < process.out.size()) {
      const ssize_t n = send(process.child.fd(), process.out.data() + process.sent,
                             process.out.size() - process.sent, MSG_NOSIGNAL);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && errno == EAGAIN) break;
      if (n <= 0) return Died(process);
      process.sent += static_cast<size_t>(n);
    }
    // The process may write as fast as this reads, so it reads a part, then serves the others and
    // the deadlines.
    char chunk[1 << 16];
    for (int chunks = 0; chunks < 16 && !process.retired; ++chunks) {
      const ssize_t n = recv(process.child.fd(), chunk, sizeof(chunk), 0);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && errno == EAGAIN) return;
      if (n <= 0) return Died(process);
      process.in.Append(chunk, static_cast<size_t>(n));
      if (!TakeAnswers(process)) return Babbles(process);
    }
  }

  // False: the bytes are not an answer.
  bool TakeAnswers(Process& process) {
    while (true) {
      auto payload = process.in.Next();
      if (!payload.ok()) return false;
      if (!payload->has_value()) return true;
      v1::CompileResponse response;
      if (!response.ParseFromString(**payload) || !Answered(process, std::move(response)))
        return false;
    }
  }

  // False: the process answers a question that was not asked.
  bool Answered(Process& process, v1::CompileResponse response) {
    if (response.id() == kReadyId && !process.ready) {
      if (response.status_code() != 0) {
        process.retired = true;
        NoProcess(ResultOf(std::move(response)).status());
        return true;
      }
      process.ready = true;
      if (!response.status_message().empty() && !std::exchange(told_, true)) {
        spdlog::warn("the system refuses to confine compile processes in these ways: {}",
                     response.status_message());
      }
      return true;
    }
    if (response.id() != kProgramId || !process.job.has_value()) return false;
    // The process says when it ends; a program that took it over may not say so.
    process.retired =
        response.last() || response.status_code() != 0 || ++process.programs >= options_.programs;
    Finish(process, ResultOf(std::move(response)));
    return true;
  }

  // The process has sent bytes that are not an answer; nothing more is read from it.
  void Babbles(Process& process) {
    if (process.job.has_value()) {
      Finish(process,
             Error(absl::StatusCode::kInternal,
                   "the process that compiled {} sent bytes that are not an answer, and was ended",
                   process.job->title));
    }
    Died(process);
  }

  void Died(Process& process) {
    if (process.retired) return;
    const int pid = process.child.pid();
    const ChildEnd end = process.child.End();
    process.retired = true;
    ++crashes_;
    spdlog::warn("compile process {} {}{}", pid, end.text,
                 process.job.has_value() ? " while compiling " + process.job->title : "");
    if (process.job.has_value()) {
      Finish(process, CompileFailure(end, options_.limits, process.job->title));
    } else if (!process.ready) {
      NoProcess(Error(absl::StatusCode::kUnavailable,
                      "this worker cannot compile: a new compile process {} before it was ready",
                      end.text));
    }
  }

  // Whether there is a process that may come to compile the program.
  bool MayWait(const Job& job) const {
    return std::ranges::any_of(processes_, [&](const Process& process) {
      return !process.retired &&
             (!process.tenant.has_value() || *process.tenant == job.options.tenant());
    });
  }

  // The next process would fail as well, so the next program tries again. Waiting programs are left
  // to the processes that exist; those without any fail now.
  void NoProcess(const absl::Status& why) {
    hold_ = true;
    std::deque<Job> waiting;
    for (Job& job : std::exchange(queue_, {})) {
      if (MayWait(job)) {
        waiting.push_back(std::move(job));
      } else {
        std::move(job.done)(why);
      }
    }
    queue_ = std::move(waiting);
    const bool alive = std::ranges::any_of(processes_, std::not_fn(&Process::retired));
    if (alive)
      spdlog::warn("no further compile process could be started, and {} programs wait: {}",
                   queue_.size(), Text(why));
  }

  void FailQueue(const absl::Status& why) {
    for (Job& job : std::exchange(queue_, {})) std::move(job.done)(why);
  }

  // Releases processes that get no more programs; they end while others work.
  void Clear() {
    bool changed = false;
    for (auto it = processes_.begin(); it != processes_.end();) {
      if (!it->retired) {
        ++it;
        continue;
      }
      ending_.push_back(std::move(it->child));
      it = processes_.erase(it);
      changed = true;
    }
    std::erase_if(ending_, [](Child& child) { return child.Retire(); });
    if (changed) KeepPids();
  }

  static void Finish(Process& process, absl::StatusOr<CompileResult> result) {
    Job job = *std::move(process.job);
    process.job.reset();
    process.out.clear();
    process.sent = 0;
    std::move(job.done)(std::move(result));
  }

  const Options options_;
  const int wake_fd_;
  std::atomic<bool> stop_{false};
  std::atomic<int> starts_;
  std::atomic<int> crashes_{0};

  mutable std::mutex mutex_;
  std::deque<Job> inbox_;                        // guarded by mutex_
  std::optional<v1::CompileTarget> new_target_;  // guarded by mutex_
  std::vector<int> pids_;  // guarded by mutex_; all members below belong to the thread

  v1::CompileTarget target_;  // empty: not known yet, or options_.told is false
  std::deque<Job> queue_;
  std::list<Process> processes_;
  std::vector<Child> ending_;
  bool hold_ = false;  // no process can be started, until the next program comes or all are gone
  bool told_ = false;  // the log has what the system refuses
  uint64_t uses_ = 0;  // counts, for Process::last_use
  std::optional<std::string> first_tenant_;
  bool several_tenants_ = false;  // a tenant other than the first has come
  std::thread thread_;
};

absl::StatusOr<std::unique_ptr<CompilePool>> CompilePool::Start(Options options) {
  Child child;
  if (!options.told || !options.target.config().empty()) {
    FAIRWAY_ASSIGN_OR_RETURN(child, Child::Spawn(options.argv, CompileEnvironment(options.env)));
  }
  auto loop = std::make_unique<Loop>(std::move(options), std::move(child));
  return std::unique_ptr<CompilePool>(new CompilePool(std::move(loop)));
}

CompilePool::CompilePool(std::unique_ptr<Loop> loop) : loop_(std::move(loop)) {}
CompilePool::~CompilePool() = default;

void CompilePool::Compile(std::string program, v1::CompileOptions options,
                          std::chrono::milliseconds limit, Done done) {
  Job job;
  job.title = ProgramTitle(program);
  job.program = std::move(program);
  job.options = std::move(options);
  job.limit = limit;
  if (limit.count() > 0) job.deadline = Clock::now() + limit;
  job.done = std::move(done);
  loop_->Add(std::move(job));
}

void CompilePool::SetTarget(v1::CompileTarget target) { loop_->SetTarget(std::move(target)); }

std::vector<int> CompilePool::pids() const { return loop_->pids(); }
int CompilePool::starts() const { return loop_->starts(); }
int CompilePool::crashes() const { return loop_->crashes(); }

}  // namespace fairway
