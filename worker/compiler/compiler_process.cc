// SPDX-License-Identifier: Apache-2.0
#include "worker/compiler/compiler_process.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>

#include "base/log.h"
#include "fairway/v1/compiler.pb.h"
#include "worker/compiler/checksum.h"
#include "worker/compiler/child.h"
#include "worker/compiler/compile_wire.h"

namespace fairway {
namespace {

using Clock = std::chrono::steady_clock;

struct Job {
  std::string program;
  v1::CompileOptions options;
  std::optional<Clock::time_point> deadline;
  std::chrono::milliseconds limit{0};
  CompilerProcess::Done done;
};

absl::StatusOr<CompileResult> ResultOf(v1::CompileResponse response) {
  if (response.status_code() != 0) {
    return absl::Status(static_cast<absl::StatusCode>(response.status_code()),
                        response.status_message());
  }
  if (Sha256Hex(response.code()) != response.checksum()) {
    return Error(absl::StatusCode::kDataLoss, "compiled code does not match its checksum");
  }
  CompileResult result;
  result.code = std::move(*response.mutable_code());
  result.checksum = std::move(*response.mutable_checksum());
  result.metadata = std::move(*response.mutable_metadata());
  return result;
}

}  // namespace

// One thread that owns the child and all jobs; others only add to inbox_ and wake it.
class CompilerProcess::Loop {
 public:
  Loop(Options options, Child child)
      : options_(std::move(options)), child_(std::move(child)), wake_fd_(eventfd(0, EFD_CLOEXEC)) {
    pid_ = child_.pid();
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

  int pid() const { return pid_; }
  int starts() const { return starts_; }

 private:
  void Wake() {
    const uint64_t one = 1;
    (void)!write(wake_fd_, &one, sizeof(one));
  }

  void Run() {
    while (!stop_) {
      TakeInbox();
      ExpireJobs();
      StartNext();
      Wait();
      if (child_.running()) Exchange();
    }
    child_.End();
    TakeInbox();
    auto cancelled = Error(absl::StatusCode::kCancelled, "the compile helper is being shut down");
    if (current_.has_value()) Finish(cancelled);
    for (Job& job : queue_) std::move(job.done)(cancelled);
  }

  void TakeInbox() {
    std::lock_guard lock(mutex_);
    for (Job& job : inbox_) queue_.push_back(std::move(job));
    inbox_.clear();
  }

  static absl::Status TooLate(const Job& job, const char* where) {
    return Error(absl::StatusCode::kDeadlineExceeded, "compilation was {} for {} ms", where,
                 job.limit.count());
  }

  void ExpireJobs() {
    const Clock::time_point now = Clock::now();
    for (auto it = queue_.begin(); it != queue_.end();) {
      if (it->deadline.has_value() && *it->deadline <= now) {
        std::move(it->done)(TooLate(*it, "queued"));
        it = queue_.erase(it);
      } else {
        ++it;
      }
    }
    if (current_.has_value() && current_->deadline.has_value() && *current_->deadline <= now) {
      kill(child_.pid(), SIGKILL);
      const int pid = child_.pid();
      child_.End();
      spdlog::warn("compile helper {} killed: a compilation took over {} ms", pid,
                   current_->limit.count());
      absl::Status late = TooLate(*current_, "under way");
      if (const absl::Status again = Restart(); !again.ok()) spdlog::error("{}", Describe(again));
      Finish(late);
    }
  }

  // Sends the next job when the child is free.
  void StartNext() {
    while (!current_.has_value() && !queue_.empty()) {
      current_ = std::move(queue_.front());
      queue_.pop_front();
      if (!child_.running()) {
        if (absl::Status status = Restart(); !status.ok()) {
          Finish(std::move(status));
          continue;
        }
      }
      v1::CompileRequest request;
      request.set_id(++last_id_);
      request.set_program(std::move(current_->program));
      *request.mutable_options() = std::move(current_->options);
      request.set_deadline_ms(current_->limit.count());
      auto frame = FrameOf(request);
      if (!frame.ok()) {
        Finish(frame.status());
        continue;
      }
      out_ = *std::move(frame);
      sent_ = 0;
    }
  }

  void Wait() {
    pollfd fds[2] = {{wake_fd_, POLLIN, 0}, {child_.fd(), POLLIN, 0}};
    if (sent_ < out_.size()) fds[1].events |= POLLOUT;
    std::optional<Clock::time_point> next;
    auto consider = [&](const Job& job) {
      if (job.deadline.has_value() && (!next.has_value() || *job.deadline < *next))
        next = job.deadline;
    };
    if (current_.has_value()) consider(*current_);
    for (const Job& job : queue_) consider(job);
    int timeout = -1;
    if (next.has_value()) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(*next - Clock::now());
      timeout = static_cast<int>(std::clamp<int64_t>(left.count(), 0, 60'000));
    }
    poll(fds, child_.running() ? 2 : 1, timeout);
    if ((fds[0].revents & POLLIN) != 0) {
      uint64_t count;
      (void)!read(wake_fd_, &count, sizeof(count));
    }
  }

  // Sends what is left of the request and takes what the child has written.
  void Exchange() {
    while (sent_ < out_.size()) {
      const ssize_t n = send(child_.fd(), out_.data() + sent_, out_.size() - sent_, MSG_NOSIGNAL);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && errno == EAGAIN) break;
      if (n <= 0) return Died();
      sent_ += static_cast<size_t>(n);
    }
    char chunk[1 << 16];
    while (true) {
      const ssize_t n = recv(child_.fd(), chunk, sizeof(chunk), 0);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && errno == EAGAIN) break;
      if (n <= 0) return Died();
      in_.Append(chunk, static_cast<size_t>(n));
    }
    auto payload = in_.Next();
    if (!payload.ok()) return Died();
    if (!payload->has_value()) return;
    v1::CompileResponse response;
    if (!response.ParseFromString(**payload) || !current_.has_value() ||
        response.id() != last_id_) {
      return Died();
    }
    answered_ = true;
    Finish(ResultOf(std::move(response)));
  }

  void Died() {
    const int pid = child_.pid();
    const std::string how = child_.End();
    pid_ = 0;
    spdlog::warn("compile helper {} {}{}", pid, how,
                 current_.has_value() ? " while compiling" : "");
    std::optional<absl::Status> failure;
    if (current_.has_value()) {
      failure = Error(absl::StatusCode::kInternal,
                      "the compile helper was {} while compiling this program",
                      how.starts_with("killed") ? how : "gone (" + how + ")");
    }
    // A helper that dies before it answers anything would die again; then the next request starts
    // it.
    if (answered_) {
      (void)Restart();
    } else {
      Reset();
    }
    if (failure.has_value()) Finish(*failure);
  }

  void Reset() {
    out_.clear();
    sent_ = 0;
    in_ = FrameBuffer();
    answered_ = false;
  }

  absl::Status Restart() {
    Reset();
    auto child = Child::Spawn(options_.argv, options_.env);
    if (!child.ok()) {
      pid_ = 0;
      return std::move(child).status();
    }
    child_ = *std::move(child);
    pid_ = child_.pid();
    ++starts_;
    return absl::OkStatus();
  }

  void Finish(absl::StatusOr<CompileResult> result) {
    Job job = *std::move(current_);
    current_.reset();
    out_.clear();
    sent_ = 0;
    std::move(job.done)(std::move(result));
  }

  const Options options_;
  Child child_;
  const int wake_fd_;
  std::atomic<bool> stop_{false};
  std::atomic<int> pid_{0};
  std::atomic<int> starts_{1};

  std::mutex mutex_;
  std::deque<Job> inbox_;  // guarded by mutex_; all below belongs to the thread

  std::deque<Job> queue_;
  std::optional<Job> current_;
  uint64_t last_id_ = 0;
  std::string out_;
  size_t sent_ = 0;
  FrameBuffer in_;
  bool answered_ = false;  // by this child
  std::thread thread_;
};

absl::StatusOr<std::unique_ptr<CompilerProcess>> CompilerProcess::Start(Options options) {
  FAIRWAY_ASSIGN_OR_RETURN(Child child, Child::Spawn(options.argv, options.env));
  auto loop = std::make_unique<Loop>(std::move(options), std::move(child));
  return std::unique_ptr<CompilerProcess>(new CompilerProcess(std::move(loop)));
}

CompilerProcess::CompilerProcess(std::unique_ptr<Loop> loop) : loop_(std::move(loop)) {}
CompilerProcess::~CompilerProcess() = default;

void CompilerProcess::Compile(std::string program, v1::CompileOptions options,
                              std::chrono::milliseconds limit, Done done) {
  Job job;
  job.program = std::move(program);
  job.options = std::move(options);
  job.limit = limit;
  if (limit.count() > 0) job.deadline = Clock::now() + limit;
  job.done = std::move(done);
  loop_->Add(std::move(job));
}

int CompilerProcess::pid() const { return loop_->pid(); }
int CompilerProcess::starts() const { return loop_->starts(); }

}  // namespace fairway
