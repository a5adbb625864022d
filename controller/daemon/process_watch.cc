// SPDX-License-Identifier: Apache-2.0
#include "controller/daemon/process_watch.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <string>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/signal_set.hpp>

namespace fairway {
namespace {

class AsioWatch final : public ProcessWatch {
 public:
  AsioWatch(EventLoop& loop, int life_fd, std::function<void(int)> on_signal,
            std::function<void()> on_orphaned)
      : signals_(loop.io_context(), SIGTERM, SIGINT),
        life_(loop.io_context()),
        on_signal_(std::move(on_signal)),
        on_orphaned_(std::move(on_orphaned)) {
    WaitForSignal();
    if (life_fd >= 0) {
      // Opens a file description of its own: the inherited one is shared with other children, and
      // Asio would make it non-blocking for them too.
      const std::string path = "/proc/self/fd/" + std::to_string(life_fd);
      const int own = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
      if (own >= 0) ::close(life_fd);
      life_.assign(own >= 0 ? own : life_fd);
      WaitForEnd();
    }
  }

 private:
  void WaitForSignal() {
    signals_.async_wait([this](const boost::system::error_code& error, int number) {
      if (error) return;  // `this` is gone
      on_signal_(number);
      WaitForSignal();
    });
  }
  void WaitForEnd() {
    life_.async_read_some(boost::asio::buffer(ignored_),
                          [this](const boost::system::error_code& error, size_t) {
                            if (error == boost::asio::error::operation_aborted)
                              return;  // `this` is gone
                            if (error) return on_orphaned_();
                            WaitForEnd();
                          });
  }

  boost::asio::signal_set signals_;
  boost::asio::posix::stream_descriptor life_;
  std::array<char, 64> ignored_;
  const std::function<void(int)> on_signal_;
  const std::function<void()> on_orphaned_;
};

}  // namespace

std::unique_ptr<ProcessWatch> ProcessWatch::Start(EventLoop& loop, int life_fd,
                                                  std::function<void(int)> on_signal,
                                                  std::function<void()> on_orphaned) {
  return std::make_unique<AsioWatch>(loop, life_fd, std::move(on_signal), std::move(on_orphaned));
}

}  // namespace fairway
