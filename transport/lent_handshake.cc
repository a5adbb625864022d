// SPDX-License-Identifier: Apache-2.0
#include "transport/lent_handshake.h"

#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <utility>

#include <boost/asio/post.hpp>

namespace fairway {
namespace {

using boost::asio::generic::stream_protocol;
using boost::system::error_code;

// Takes what has come: whoever closes a socket with unread bytes has the kernel throw away the
// alert that says why.
void Drain(int fd) {
  char bytes[4096];
  for (int reads = 0; reads < 16; ++reads) {
    if (::recv(fd, bytes, sizeof bytes, MSG_DONTWAIT) <= 0) return;
  }
}

}  // namespace

LentHandshake::LentHandshake(boost::asio::io_context& thread, std::shared_ptr<TlsStream> stream,
                             int fd, Done done)
    : thread_(thread),
      stream_(std::move(stream)),
      fd_(fd),
      done_(std::move(done)),
      socket_(thread),
      timer_(thread) {}

LentHandshake::~LentHandshake() {
  if (done_ != nullptr && !socket_->is_open()) ::close(fd_);  // it has not begun
}

void LentHandshake::Start(std::chrono::milliseconds timeout) {
  boost::asio::post(thread_, [self = shared_from_this(), timeout] { self->Begin(timeout); });
}

void LentHandshake::Drop() {
  boost::asio::post(thread_, [self = shared_from_this()] {
    if (self->done_ != nullptr) self->End(boost::asio::error::operation_aborted);
  });
}

void LentHandshake::Begin(std::chrono::milliseconds timeout) {
  if (done_ == nullptr) return;
  int family = AF_UNIX;
  socklen_t size = sizeof family;
  ::getsockopt(fd_, SOL_SOCKET, SO_DOMAIN, &family, &size);
  error_code error;
  socket_->assign(stream_protocol(family, 0), fd_, error);
  if (error) return End(error);
  timer_->expires_after(timeout);
  timer_->async_wait([weak = weak_from_this()](const error_code& cancelled) {
    const auto self = weak.lock();
    if (!cancelled && self != nullptr && self->done_ != nullptr)
      self->End(boost::asio::error::timed_out);
  });
  Step();
}

void LentHandshake::Step() {
  error_code error;
  const TlsStream::Wait wait = stream_->Shake(fd_, error);
  if (wait == TlsStream::Wait::kNothing) return End(error);
  socket_->async_wait(wait == TlsStream::Wait::kReadable ? stream_protocol::socket::wait_read
                                                         : stream_protocol::socket::wait_write,
                      [self = shared_from_this()](const error_code& error) {
                        if (self->done_ == nullptr) return;
                        if (error) return self->End(error);
                        self->Step();
                      });
}

void LentHandshake::End(error_code error) {
  timer_.reset();
  if (error) Drain(fd_);
  error_code ignored;
  Outcome out{.fd = fd_, .error = error};
  if (socket_->is_open()) out.fd = socket_->release(ignored);
  socket_.reset();
  std::exchange(done_, nullptr)(out);
}

boost::asio::io_context& HandshakeThread::io() {
  if (!thread_.joinable()) {
    thread_ = std::thread([this] {
      pthread_setname_np(pthread_self(), "fairway-tls");
      io_.run();
    });
  }
  return io_;
}

void HandshakeThread::Stop() {
  work_.reset();
  if (thread_.joinable()) thread_.join();
}

}  // namespace fairway
