// SPDX-License-Identifier: Apache-2.0
#include "controller/daemon/process_watch.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
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
  AsioWatch(EventLoop& loop, const std::vector<int>& signals, int life_fd, Events events)
      : signals_(loop.io_context()), life_(loop.io_context()), events_(std::move(events)) {
    for (const int number : signals) signals_.add(number);
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
      events_.on_signal(number);
      WaitForSignal();
    });
  }
  void WaitForEnd() {
    life_.async_read_some(boost::asio::buffer(ignored_),
                          [this](const boost::system::error_code& error, size_t) {
                            if (error == boost::asio::error::operation_aborted)
                              return;  // `this` is gone
                            if (error) return events_.on_orphaned();
                            WaitForEnd();
                          });
  }

  boost::asio::signal_set signals_;
  boost::asio::posix::stream_descriptor life_;
  std::array<char, 64> ignored_;
  const Events events_;
};

}  // namespace

std::unique_ptr<ProcessWatch> ProcessWatch::Start(EventLoop& loop, const std::vector<int>& signals,
                                                  int life_fd, Events events) {
  return std::make_unique<AsioWatch>(loop, signals, life_fd, std::move(events));
}

}  // namespace fairway
