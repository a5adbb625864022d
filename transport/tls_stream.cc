// SPDX-License-Identifier: Apache-2.0
#include "transport/tls_stream.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include <boost/asio/post.hpp>
#include <boost/asio/ssl/error.hpp>
#include <boost/asio/write.hpp>

namespace fairway {
namespace {

using boost::system::error_code;

constexpr size_t kMostMessages = 32;       // of the handshake, when it is over
constexpr size_t kSealedBytes = 64 << 10;  // of plain text in one send
constexpr int kMostTakes = 4;              // in one step of a handshake
constexpr size_t kKeptBytes = 4 << 10;     // a larger buffer is given back when all was sent

}  // namespace

// A BIO over the stream's memory.
class TlsStream::Io {
 public:
  static BIO* New(TlsStream* stream) {
    static BIO_METHOD* const method = Method();
    BIO* const out = BIO_new(method);
    if (out == nullptr) return nullptr;
    BIO_set_data(out, stream);
    BIO_set_init(out, 1);
    return out;
  }

 private:
  static BIO_METHOD* Method() {
    BIO_METHOD* const out = BIO_meth_new(BIO_TYPE_SOURCE_SINK | BIO_get_new_index(), "TlsStream");
    BIO_meth_set_read(out, Read);
    BIO_meth_set_write(out, Write);
    BIO_meth_set_ctrl(out, Control);
    return out;
  }
  static int Read(BIO* bio, char* into, int size) {
    auto* const stream = static_cast<TlsStream*>(BIO_get_data(bio));
    BIO_clear_retry_flags(bio);
    const size_t count =
        std::min(static_cast<size_t>(std::max(size, 0)), stream->taken_end_ - stream->taken_begin_);
    if (count == 0) {
      BIO_set_retry_read(bio);
      return -1;
    }
    std::memcpy(into, stream->taken_.data() + stream->taken_begin_, count);
    stream->taken_begin_ += count;
    return static_cast<int>(count);
  }
  static int Write(BIO* bio, const char* bytes, int size) {
    static_cast<TlsStream*>(BIO_get_data(bio))->sealed_.append(bytes, static_cast<size_t>(size));
    return size;
  }
  // NOLINTNEXTLINE(google-runtime-int): OpenSSL's type
  static long Control(BIO* /*bio*/, int command, long /*number*/, void* /*pointer*/) {
    return command == BIO_CTRL_FLUSH ? 1 : 0;
  }
};

void TlsStream::Free::operator()(ssl_st* connection) const { SSL_free(connection); }

TlsStream::TlsStream(Socket socket, ssl_ctx_st* context, Side side, size_t taken)
    : socket_(std::move(socket)), connection_(SSL_new(context)), taken_(taken) {
  BIO* const io = Io::New(this);
  if (connection_ == nullptr || io == nullptr) throw std::bad_alloc();
  SSL_set_bio(connection_.get(), io, io);  // which owns it now
  // A read ends after each message of the handshake, so that they can be counted.
  SSL_clear_mode(connection_.get(), SSL_MODE_AUTO_RETRY);
  SSL_set_msg_callback(connection_.get(), OnMessage);
  SSL_set_msg_callback_arg(connection_.get(), this);
  if (side == Side::kClient) {
    SSL_set_connect_state(connection_.get());
  } else {
    SSL_set_accept_state(connection_.get());
  }
}

TlsStream::~TlsStream() = default;

error_code TlsStream::Failure(int result) {
  const int kind = SSL_get_error(connection_.get(), result);
  const unsigned long first = ERR_get_error();  // NOLINT(google-runtime-int): OpenSSL's type
  ERR_clear_error();
  if (kind == SSL_ERROR_WANT_READ) return {};
  if (kind == SSL_ERROR_ZERO_RETURN) return boost::asio::error::eof;
  if (first == 0) return boost::asio::ssl::error::unspecified_system_error;
  return {static_cast<int>(first), boost::asio::error::get_ssl_category()};
}

void TlsStream::OnMessage(int sent, int /*version*/, int type, const void* /*bytes*/,
                          size_t /*size*/, ssl_st* /*connection*/, void* stream) {
  auto* const self = static_cast<TlsStream*>(stream);
  if (self->shaken_ && sent == 0 && type == SSL3_RT_HANDSHAKE) ++self->messages_;
}

TlsStream::Wait TlsStream::Shake(int fd, error_code& error) {
  for (int takes = 0;; ++takes) {
    ERR_clear_error();
    const int result = SSL_do_handshake(connection_.get());
    if (result != 1) error = Failure(result);
    while (!sealed_.empty()) {
      const ssize_t sent = ::send(fd, sealed_.data(), sealed_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent < 0 && errno == EINTR) continue;
      if (sent < 0 && errno == EAGAIN && !error) return Wait::kWritable;
      if (sent < 0 && !error) error = {errno, boost::system::system_category()};
      if (sent < 0) return Wait::kNothing;
      sealed_.erase(0, static_cast<size_t>(sent));
    }
    shaken_ = result == 1;
    if (result == 1 || error) return Wait::kNothing;
    if (takes == kMostTakes) return Wait::kReadable;
    const ssize_t count = ::recv(fd, taken_.data(), taken_.size(), MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return Wait::kReadable;
    if (count < 0) error = {errno, boost::system::system_category()};
    if (count == 0) error = boost::asio::ssl::error::stream_truncated;
    if (count <= 0) return Wait::kNothing;
    taken_begin_ = 0;
    taken_end_ = static_cast<size_t>(count);
  }
}

void TlsStream::ReadSome(boost::asio::mutable_buffer into, Done done) {
  into_ = into;
  read_done_ = std::move(done);
  const bool nothing = taken_begin_ == taken_end_ && SSL_pending(connection_.get()) == 0;
  if (nothing && !ended_ && into_.size() > 0) return Take();
  // It must not end inside this call.
  boost::asio::post(socket_.get_executor(), [self = shared_from_this(),
                                             kept = std::exchange(read_done_, nullptr)]() mutable {
    self->read_done_ = std::move(kept);
    self->Read();
  });
}

void TlsStream::Take() {
  // A peer that makes this end answer, and does not read, waits for itself.
  if (const auto waiting = waiting_.lock(); waiting != nullptr && !sealed_.empty()) {
    waiting->read = std::exchange(read_done_, nullptr);
    return;
  }
  socket_.async_read_some(boost::asio::buffer(taken_),
                          [self = shared_from_this(), kept = std::exchange(read_done_, nullptr)](
                              const error_code& error, size_t count) mutable {
                            self->read_done_ = std::move(kept);
                            self->taken_begin_ = 0;
                            self->taken_end_ = count;
                            self->ended_ = error == boost::asio::error::eof
                                               ? boost::asio::ssl::error::stream_truncated
                                               : error;
                            self->Read();
                          });
}

void TlsStream::Read() {
  size_t count = 0;
  while (count < into_.size() && !ended_) {
    ERR_clear_error();
    size_t part = 0;
    const int result = SSL_read_ex(connection_.get(), static_cast<char*>(into_.data()) + count,
                                   into_.size() - count, &part);
    count += part;
    received_ += part;
    if (result == 1) continue;
    ended_ = Failure(result);
    if (!ended_ && messages_ > kMostMessages + (received_ >> 20))
      ended_ = boost::asio::ssl::error::unexpected_result;
    if (taken_begin_ == taken_end_) break;  // it needs more
  }
  Send();  // what OpenSSL tells the peer by itself: why it takes nothing more, another key
  if (count == 0 && !ended_ && into_.size() > 0) return Take();
  std::exchange(read_done_, nullptr)(count > 0 ? error_code() : ended_, count);
}

void TlsStream::StartWrite(Done done) {
  plain_next_ = written_ = 0;
  if (const auto waiting = waiting_.lock(); waiting != nullptr) {
    waiting->write = std::move(done);
    return;
  }
  write_done_ = std::move(done);
  Send();
  if (write_done_ == nullptr) return;
  // There is nothing to write, or it failed. It must not end inside this call.
  boost::asio::post(socket_.get_executor(), [self = shared_from_this(),
                                             kept = std::exchange(write_done_, nullptr)]() mutable {
    std::move(kept)(self->write_error_, self->written_);
  });
}

void TlsStream::EndWrite() {
  if (write_done_ != nullptr) std::exchange(write_done_, nullptr)(write_error_, written_);
}

void TlsStream::Seal() {
  size_t room = kSealedBytes;
  while (room > 0 && plain_next_ < plain_.size() && !write_error_) {
    boost::asio::const_buffer& part = plain_[plain_next_];
    const size_t size = std::min(room, part.size());
    if (size > 0) {
      ERR_clear_error();
      size_t done = 0;
      const int result = SSL_write_ex(connection_.get(), part.data(), size, &done);
      if (result != 1) {
        write_error_ = Failure(result);
        // The peer has sent half a message of the handshake; until it sends the rest, OpenSSL
        // writes nothing.
        if (!write_error_) write_error_ = boost::asio::ssl::error::unexpected_result;
        return;
      }
      written_ += done;
      room -= size;
      part += size;
    }
    if (part.size() == 0) ++plain_next_;
  }
}

void TlsStream::Send() {
  if (!sending_.empty()) return;
  if (sealed_.empty() && write_done_ != nullptr) Seal();
  if (sealed_.empty()) return;
  std::swap(sealed_, sending_);
  const auto waiting = std::make_shared<Waiting>();
  waiting->write = std::exchange(write_done_, nullptr);
  waiting_ = waiting;
  boost::asio::async_write(
      socket_, boost::asio::buffer(sending_),
      [](const error_code& error, size_t) { return error ? 0 : 2 * kSealedBytes; },
      [self = shared_from_this(), waiting](const error_code& error, size_t) {
        self->read_done_ = std::move(waiting->read);
        self->write_done_ = std::move(waiting->write);
        self->OnSent(error);
      });
}

void TlsStream::OnSent(const error_code& error) {
  sending_.clear();
  waiting_.reset();
  if (error) {
    write_error_ = error;
    sealed_.clear();
  }
  // What is sealed by now may end with what this write is for.
  if (write_error_ || (plain_next_ == plain_.size() && sealed_.empty())) EndWrite();
  Send();
  if (sending_.empty()) {
    EndWrite();  // it could not be encrypted
    if (sending_.capacity() > kKeptBytes) sending_ = std::string();
    if (sealed_.capacity() > kKeptBytes) sealed_ = std::string();
  }
  if (read_done_ != nullptr) Take();
}

void TlsStream::EndWriting(Done done) {
  SSL_shutdown(connection_.get());
  ERR_clear_error();
  plain_.clear();
  StartWrite(std::move(done));
}

}  // namespace fairway
