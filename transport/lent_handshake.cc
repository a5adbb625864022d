// SPDX-License-Identifier: Apache-2.0
#include "transport/lent_handshake.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <utility>

#include <boost/asio/post.hpp>
#include <boost/asio/ssl/error.hpp>

namespace fairway {
namespace {

using boost::asio::generic::stream_protocol;
using boost::system::error_code;

// Of OpenSSL's last call, which has failed with `kind` (SSL_get_error).
error_code FailureOf(int kind, int system) {
  const unsigned long first = ERR_get_error();  // NOLINT(google-runtime-int): OpenSSL's type
  ERR_clear_error();
  const bool ended =
      kind == SSL_ERROR_ZERO_RETURN ||
      (kind == SSL_ERROR_SSL && ERR_GET_REASON(first) == SSL_R_UNEXPECTED_EOF_WHILE_READING) ||
      (kind == SSL_ERROR_SYSCALL && first == 0 && system == 0);
  if (ended) return boost::asio::ssl::error::stream_truncated;
  if (kind == SSL_ERROR_SYSCALL && first == 0) return {system, boost::system::system_category()};
  return {static_cast<int>(first), boost::asio::error::get_ssl_category()};
}

// Takes what has come: whoever closes a socket with unread bytes has the kernel throw away the
// alert that says why.
void Drain(int fd) {
  char bytes[4096];
  for (int reads = 0; reads < 16; ++reads) {
    if (::recv(fd, bytes, sizeof bytes, MSG_DONTWAIT) <= 0) return;
  }
}

}  // namespace

LentHandshake::LentHandshake(boost::asio::io_context& thread, ssl_st* connection, int fd, Done done)
    : thread_(thread),
      connection_(connection),
      fd_(fd),
      done_(std::move(done)),
      socket_(thread),
      timer_(thread) {}

LentHandshake::~LentHandshake() {
  BIO_free(asio_);
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
  if (!error) socket_->native_non_blocking(true, error);
  if (error) return End(error);
  asio_ = SSL_get_rbio(connection_);
  BIO_up_ref(asio_);
  BIO* const socket = BIO_new_socket(fd_, BIO_NOCLOSE);
  if (socket == nullptr) return End(boost::asio::error::no_memory);
  SSL_set_bio(connection_, socket, socket);
  timer_->expires_after(timeout);
  timer_->async_wait([weak = weak_from_this()](const error_code& cancelled) {
    const auto self = weak.lock();
    if (!cancelled && self != nullptr && self->done_ != nullptr)
      self->End(boost::asio::error::timed_out);
  });
  Step();
}

void LentHandshake::Step() {
  ERR_clear_error();
  errno = 0;
  const int result = SSL_accept(connection_);
  const int system = errno;
  const int kind = SSL_get_error(connection_, result);
  if (kind == SSL_ERROR_NONE) return End({});
  if (kind != SSL_ERROR_WANT_READ && kind != SSL_ERROR_WANT_WRITE)
    return End(FailureOf(kind, system));
  socket_->async_wait(kind == SSL_ERROR_WANT_READ ? stream_protocol::socket::wait_read
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
  // It takes the reference over.
  if (asio_ != nullptr) SSL_set_bio(connection_, asio_, asio_);
  asio_ = nullptr;
  std::exchange(done_, nullptr)(out);
}

boost::asio::io_context& HandshakeThread::io() {
  if (!thread_.joinable()) {
    thread_ = std::thread([this] {
      pthread_setname_np(pthread_self(), "fairway-tls");
      sigset_t pipe;
      sigemptyset(&pipe);
      sigaddset(&pipe, SIGPIPE);  // OpenSSL writes to sockets whose other ends have gone
      pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
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
