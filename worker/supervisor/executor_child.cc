// SPDX-License-Identifier: Apache-2.0
#include "worker/supervisor/executor_child.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>

#include <spdlog/spdlog.h>
#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>

#include "worker/compiler/compile_wire.h"
#include "worker/process/exit_codes.h"
#include "worker/supervisor/log_tail.h"

namespace fairway {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kReapAgain{2};
// How long to wait for the rest of the log of a process that has ended; it may have passed its
// standard error on.
constexpr milliseconds kLogWait{300};

std::vector<char*> Pointers(const std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (const std::string& text : texts) out.push_back(const_cast<char*>(text.c_str()));
  out.push_back(nullptr);
  return out;
}

// State that the log-reading thread shares with the loop.
struct Log {
  explicit Log(std::shared_ptr<RecentLines> recent)
      : tail(ExecutorChild::kLastLines, [recent = std::move(recent)](std::string_view line) {
          if (recent != nullptr) recent->Add(line);
        }) {}
  std::mutex mutex;
  LogTail tail;
};

// Copies `fd` to our standard error until its end. Blocks, so it does not run in the loop.
void CopyLog(int fd, Log& log) {
  std::array<char, 4096> chunk;
  while (true) {
    const ssize_t got = ::read(fd, chunk.data(), chunk.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    const std::string_view text(chunk.data(), static_cast<size_t>(got));
    {
      std::lock_guard lock(log.mutex);
      log.tail.Append(text);
    }
    for (size_t at = 0; at < text.size();) {
      const ssize_t put = ::write(STDERR_FILENO, text.data() + at, text.size() - at);
      if (put < 0 && errno == EINTR) continue;
      if (put <= 0) break;  // nobody reads our output; the tail is kept all the same
      at += static_cast<size_t>(put);
    }
  }
  ::close(fd);
  const std::lock_guard lock(log.mutex);
  log.tail.End();
}

absl::StatusOr<pid_t> Start(const std::vector<std::string>& argv,
                            const std::vector<std::string>& env, int log_fd, int life_fd) {
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files, log_fd, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&files, log_fd, STDERR_FILENO);
  posix_spawn_file_actions_adddup2(&files, life_fd, ExecutorChild::kLifeFd);
  posix_spawn_file_actions_addclosefrom_np(&files, ExecutorChild::kLifeFd + 1);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  pid_t pid = 0;
  const int error = posix_spawn(&pid, argv[0].c_str(), &files, &attributes, Pointers(argv).data(),
                                Pointers(env).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  if (error != 0) {
    return Error(absl::StatusCode::kUnavailable, "cannot start {}: {}", argv[0],
                 std::strerror(error));
  }
  return pid;
}

}  // namespace

struct ExecutorChild::State : std::enable_shared_from_this<State> {
  State(EventLoop& l, std::shared_ptr<RecentLines> lines)
      : loop(l), life(l.io_context()), log(std::make_shared<Log>(std::move(lines))) {}

  // Reads the messages of the process about itself; end of file is the end of the process.
  void ReadLife() {
    life.async_read_some(
        boost::asio::buffer(incoming),
        [self = shared_from_this()](const boost::system::error_code& error, size_t size) {
          if (error) return self->Reap();
          if (self->understood) self->frames.Append(self->incoming.data(), size);
          if (self->understood && !self->TakeFrames()) {
            self->understood = false;
            spdlog::error(
                "the executor (pid {}) sent bytes that are not a message; its further messages "
                "are ignored",
                self->end.pid);
          }
          self->ReadLife();
        });
  }

  bool TakeFrames() {
    while (true) {
      const auto frame = frames.Next();
      if (!frame.ok()) return false;
      if (!frame->has_value()) return true;
      v1::ExecutorStarted started;
      if (!started.ParseFromString(**frame)) return false;
      end.incarnation = started.incarnation();
      if (on_start) on_start(started);
    }
  }

  void Reap() {
    if (reaped) return;
    int status = 0;
    const pid_t got = ::waitpid(end.pid, &status, WNOHANG);
    if (got == 0 || (got < 0 && errno == EINTR)) {
      loop.PostAfter(kReapAgain, "reap executor", [self = shared_from_this()] { self->Reap(); });
      return;
    }
    reaped = true;
    if (got > 0 && WIFSIGNALED(status)) end.signal = WTERMSIG(status);
    if (got > 0 && WIFEXITED(status)) end.exit_code = WEXITSTATUS(status);
    if (log_ended) return Report();
    loop.PostAfter(kLogWait, "executor log", [self = shared_from_this()] { self->Report(); });
  }

  void Report() {
    if (reported) return;
    reported = true;
    {
      std::lock_guard lock(log->mutex);
      end.last_lines = log->tail.Lines();
    }
    if (auto f = std::exchange(on_end, nullptr)) f(end);
  }

  EventLoop& loop;
  boost::asio::local::stream_protocol::socket life;
  std::shared_ptr<Log> log;
  ProcessEnd end;
  std::array<char, 4096> incoming;
  FrameBuffer frames;
  bool understood = true;  // everything so far was understood
  bool reaped = false;
  bool log_ended = false;
  bool reported = false;
  std::function<void(const v1::ExecutorStarted&)> on_start;
  std::function<void(ProcessEnd)> on_end;
};

absl::StatusOr<std::unique_ptr<ExecutorChild>> ExecutorChild::Spawn(
    EventLoop& loop, const std::vector<std::string>& argv, const std::vector<std::string>& env,
    std::shared_ptr<RecentLines> lines, std::function<void(const v1::ExecutorStarted&)> on_start,
    std::function<void(ProcessEnd)> on_end) {
  int life[2];
  int log[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, life) != 0) {
    return Error(absl::StatusCode::kUnavailable, "socketpair: {}", std::strerror(errno));
  }
  if (::pipe2(log, O_CLOEXEC) != 0) {
    ::close(life[0]);
    ::close(life[1]);
    return Error(absl::StatusCode::kUnavailable, "pipe: {}", std::strerror(errno));
  }
  const auto pid = Start(argv, env, log[1], life[1]);
  ::close(life[1]);
  ::close(log[1]);
  if (!pid.ok()) {
    ::close(life[0]);
    ::close(log[0]);
    return pid.status();
  }
  auto state = std::make_shared<State>(loop, std::move(lines));
  state->end.pid = *pid;
  state->on_start = std::move(on_start);
  state->on_end = std::move(on_end);
  boost::system::error_code error;
  state->life.assign(boost::asio::local::stream_protocol(), life[0], error);
  state->ReadLife();
  std::thread([fd = log[0], log = state->log, weak = std::weak_ptr<State>(state), &loop] {
    CopyLog(fd, *log);
    // The supervisor keeps its loop until the process ends; after that nothing here runs any more.
    loop.Post("executor log ended", [weak] {
      const auto self = weak.lock();
      if (self == nullptr) return;
      self->log_ended = true;
      if (self->reaped) self->Report();
    });
  }).detach();
  return std::unique_ptr<ExecutorChild>(new ExecutorChild(std::move(state)));
}

ExecutorChild::ExecutorChild(std::shared_ptr<State> state) : state_(std::move(state)) {}

ExecutorChild::~ExecutorChild() {
  state_->on_start = nullptr;
  state_->on_end = nullptr;
  if (state_->reaped) return;
  ::kill(state_->end.pid, SIGKILL);
  while (::waitpid(state_->end.pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  state_->reaped = true;
}

pid_t ExecutorChild::pid() const { return state_->end.pid; }
uint64_t ExecutorChild::incarnation() const { return state_->end.incarnation; }

void ExecutorChild::Signal(int number) {
  if (!state_->reaped) ::kill(state_->end.pid, number);
}

void ExecutorChild::Tell(char byte) {
  [[maybe_unused]] const ssize_t sent =
      ::send(state_->life.native_handle(), &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

}  // namespace fairway
