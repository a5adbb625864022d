// SPDX-License-Identifier: Apache-2.0
// A TLS handshake, perhaps on another thread than that of the connection's loop: a server's takes
// about a millisecond. Only files of this folder include it, because it includes Asio.
#ifndef FAIRWAY_TRANSPORT_LENT_HANDSHAKE_H_
#define FAIRWAY_TRANSPORT_LENT_HANDSHAKE_H_

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include <absl/functional/any_invocable.h>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "transport/tls_stream.h"

namespace fairway {

// A connection cannot move to another loop of Asio once it is one's. So it is its loop's from the
// beginning, while its socket and the handshake are lent to a thread, or to the loop itself.
class LentHandshake : public std::enable_shared_from_this<LentHandshake> {
 public:
  // On the thread: it has ended. `fd` is the caller's again, and so is the stream.
  struct Outcome {
    int fd = -1;
    boost::system::error_code error = {};
  };
  using Done = absl::AnyInvocable<void(Outcome)>;

  // `fd` is the socket of `stream`, which it has given away.
  LentHandshake(boost::asio::io_context& thread, std::shared_ptr<TlsStream> stream, int fd,
                Done done);
  ~LentHandshake();
  LentHandshake(const LentHandshake&) = delete;
  LentHandshake& operator=(const LentHandshake&) = delete;

  // `error` is boost::asio::error::timed_out if it has not ended by then. Called once.
  void Start(std::chrono::milliseconds timeout);
  // Ends it with operation_aborted. Thread-safe.
  void Drop();

 private:
  void Begin(std::chrono::milliseconds timeout);
  void Step();
  void End(boost::system::error_code error);

  boost::asio::io_context& thread_;
  const std::shared_ptr<TlsStream> stream_;
  const int fd_;
  Done done_;
  // Of the thread, which may be gone once it has ended.
  std::optional<boost::asio::generic::stream_protocol::socket> socket_;
  std::optional<boost::asio::steady_timer> timer_;
};

// A thread on which they run. It starts with the first one.
class HandshakeThread {
 public:
  ~HandshakeThread() { Stop(); }
  boost::asio::io_context& io();
  // Waits for those under way, which were dropped.
  void Stop();

 private:
  boost::asio::io_context io_{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_{
      io_.get_executor()};
  std::thread thread_;
};

}  // namespace fairway

#endif  // FAIRWAY_TRANSPORT_LENT_HANDSHAKE_H_
