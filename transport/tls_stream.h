// SPDX-License-Identifier: Apache-2.0
// A connected socket with TLS by OpenSSL. Asio's own stream takes a system call, and a turn of the
// loop, for each record of 16 KiB; this one sends and takes several records at a time
// (docs/design/0067-tls.md). Only files of this folder include it, because it includes Asio.
#ifndef FAIRWAY_TRANSPORT_TLS_STREAM_H_
#define FAIRWAY_TRANSPORT_TLS_STREAM_H_

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/functional/any_invocable.h>
#include <boost/asio/buffer.hpp>
#include <boost/asio/generic/stream_protocol.hpp>

// Of OpenSSL: SSL, SSL_CTX and BIO.
struct ssl_st;
struct ssl_ctx_st;
struct bio_st;

namespace fairway {

// Lives on the thread of the socket's loop, but for its handshake, which may be elsewhere. OpenSSL
// reads and writes memory only: `taken_` and `sealed_`. So what one turn does is bounded by what
// was taken from the socket, whatever the peer sends. A peer that goes on about the handshake when
// it is over (new keys, tickets) gets 32 messages for that and one more per MiB, and then an error.
class TlsStream : public std::enable_shared_from_this<TlsStream> {
 public:
  using Socket = boost::asio::generic::stream_protocol::socket;
  using Done = absl::AnyInvocable<void(const boost::system::error_code&, size_t)>;
  enum class Side { kClient, kServer };

  // `taken`: how much it takes from the socket at a time.
  TlsStream(Socket socket, ssl_ctx_st* context, Side side, size_t taken);
  ~TlsStream();
  TlsStream(const TlsStream&) = delete;
  TlsStream& operator=(const TlsStream&) = delete;

  Socket& socket() { return socket_; }
  ssl_st* native_handle() { return connection_.get(); }

  // A step of the handshake on `fd`, the socket's, which does not block. What it waits for;
  // kNothing without an error: it has ended. It sends what it has to say also when it fails.
  enum class Wait { kNothing, kReadable, kWritable };
  Wait Shake(int fd, boost::system::error_code& error);

  // As Asio's async_read_some. One at a time.
  void ReadSome(boost::asio::mutable_buffer into, Done done);
  // Writes all of them. One at a time; the bytes live until `done` runs.
  template <typename Buffers>
  void Write(const Buffers& buffers, Done done) {
    plain_.assign(boost::asio::buffer_sequence_begin(buffers),
                  boost::asio::buffer_sequence_end(buffers));
    StartWrite(std::move(done));
  }
  // Sends the record that ends the stream; what the peer still sends can be read. No write is under
  // way, and none comes after it.
  void EndWriting(Done done);

 private:
  class Io;  // what OpenSSL reads from and writes to
  // Who waits while bytes are being sent. What the loop runs next has it, and this object has not:
  // they may have the owner of this object, and the loop may end first.
  struct Waiting {
    Done read;
    Done write;
  };
  struct Free {
    void operator()(ssl_st* connection) const;
  };

  // OpenSSL's last call has returned `result`, which is no success. None: it needs more bytes.
  boost::system::error_code Failure(int result);
  // The peer has sent a message of the handshake, which is over.
  static void OnMessage(int sent, int version, int type, const void* bytes, size_t size,
                        ssl_st* connection, void* stream);
  // Takes bytes of the socket, and then reads.
  void Take();
  void Read();
  void StartWrite(Done done);
  void EndWrite();
  // Encrypts what fits into one send.
  void Seal();
  void Send();
  void OnSent(const boost::system::error_code& error);

  Socket socket_;
  std::unique_ptr<ssl_st, Free> connection_;

  // Bytes of the socket; OpenSSL has not read those in [taken_begin_, taken_end_) yet.
  std::vector<char> taken_;
  size_t taken_begin_ = 0;
  size_t taken_end_ = 0;
  boost::asio::mutable_buffer into_;
  Done read_done_;                   // while Take or Read runs
  boost::system::error_code ended_;  // what the reads after those bytes end with
  bool shaken_ = false;              // the handshake is over
  size_t received_ = 0;              // bytes for the reader
  size_t messages_ = 0;              // of the handshake, when it was over

  std::vector<boost::asio::const_buffer> plain_;  // what is left of a write, from plain_next_ on
  size_t plain_next_ = 0;
  size_t written_ = 0;  // of this write
  Done write_done_;     // while Send or OnSent runs
  boost::system::error_code write_error_;
  std::string sealed_;              // what OpenSSL has written
  std::string sending_;             // what the socket takes meanwhile; empty: nothing is being sent
  std::weak_ptr<Waiting> waiting_;  // while something is being sent
};

}  // namespace fairway

#endif  // FAIRWAY_TRANSPORT_TLS_STREAM_H_
