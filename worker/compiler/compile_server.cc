// SPDX-License-Identifier: Apache-2.0
#include "worker/compiler/compile_server.h"

#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <thread>

#include "base/log.h"
#include "fairway/v1/compiler.pb.h"
#include "worker/compiler/compile_wire.h"

namespace fairway {
namespace {

// Ends the process with its children, if it leads a group of its own.
[[noreturn]] void EndAtOnce() {
  if (getpgrp() == getpid()) kill(0, SIGKILL);
  std::_Exit(0);
}

// Reads all the time, so that it sees the end of the parent during a long compilation.
class RequestReader {
 public:
  explicit RequestReader(int fd) : thread_([this, fd] { Read(fd); }) {}
  ~RequestReader() { thread_.join(); }

  // Returns the next request; nullopt at the end of the link.
  std::optional<v1::CompileRequest> Next() {
    std::unique_lock lock(mutex_);
    busy_ = false;
    wake_.wait(lock, [this] { return closed_ || !requests_.empty(); });
    if (requests_.empty()) return std::nullopt;
    busy_ = true;
    v1::CompileRequest request = std::move(requests_.front());
    requests_.pop_front();
    return request;
  }
  bool broken() {
    std::lock_guard lock(mutex_);
    return broken_;
  }

 private:
  void Read(int fd) {
    FrameBuffer frames;
    char chunk[1 << 16];
    while (true) {
      const ssize_t n = read(fd, chunk, sizeof(chunk));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return Close(n < 0);
      frames.Append(chunk, static_cast<size_t>(n));
      while (true) {
        auto payload = frames.Next();
        if (!payload.ok()) return Close(true);
        if (!payload->has_value()) break;
        v1::CompileRequest request;
        if (!request.ParseFromString(**payload)) return Close(true);
        std::lock_guard lock(mutex_);
        requests_.push_back(std::move(request));
        wake_.notify_one();
      }
    }
  }

  void Close(bool broken) {
    std::lock_guard lock(mutex_);
    closed_ = true;
    broken_ = broken;
    if (busy_) EndAtOnce();
    requests_.clear();
    wake_.notify_one();
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<v1::CompileRequest> requests_;
  bool busy_ = false;
  bool closed_ = false;
  bool broken_ = false;
  std::thread thread_;  // last: it starts when all other members exist
};

bool WriteAll(int fd, const std::string& bytes) {
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = write(fd, bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    done += static_cast<size_t>(n);
  }
  return true;
}

v1::CompileResponse Answer(const v1::CompileRequest& request, Compiler& compiler) {
  v1::CompileResponse response;
  response.set_id(request.id());
  absl::StatusOr<CompileResult> result = compiler.Compile(request.program(), request.options());
  response.set_status_code(static_cast<int32_t>(result.status().code()));
  response.set_status_message(Text(result.status()));
  if (result.ok()) {
    response.set_code(std::move(result->code));
    response.set_checksum(std::move(result->checksum));
    *response.mutable_metadata() = std::move(result->metadata);
  }
  return response;
}

}  // namespace

int ServeCompiler(int fd, const absl::StatusOr<Compiler*>& compiler, int programs,
                  const Seal* seal) {
  std::signal(SIGPIPE, SIG_IGN);
  const std::string refused = seal != nullptr ? seal->refused() : "";
  v1::CompileResponse ready;
  ready.set_id(kReadyId);
  ready.set_status_code(static_cast<int32_t>(compiler.status().code()));
  ready.set_status_message(compiler.ok() ? refused : Text(compiler.status()));
  if (!WriteAll(fd, FrameOf(ready).value()) || !compiler.ok()) return 1;
  RequestReader requests(fd);
  while (auto request = requests.Next()) {
    v1::CompileResponse response = Answer(*request, **compiler);
    response.set_last(--programs <= 0 || response.status_code() != 0 ||
                      (seal != nullptr && seal->Used()));
    auto frame = FrameOf(response);
    if (!frame.ok()) {
      v1::CompileResponse failed;
      failed.set_id(response.id());
      failed.set_last(response.last());
      failed.set_status_code(static_cast<int32_t>(frame.status().code()));
      failed.set_status_message(Text(frame.status()));
      frame = FrameOf(failed);
    }
    // The reader cannot be stopped while it waits in read(), so the process ends with the link.
    if (!WriteAll(fd, *frame)) std::_Exit(1);
  }
  return requests.broken() ? 1 : 0;
}

}  // namespace fairway
