// SPDX-License-Identifier: Apache-2.0
#include "transport/frame_stream.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include <boost/asio/post.hpp>
#include <boost/asio/ssl/error.hpp>

#include "base/crc32c.h"
#include "transport/channel.h"

namespace fairway {
namespace {

using boost::system::error_code;

constexpr std::chrono::seconds kLinger{2};

// In TLS 1.3 a client has shaken hands before the server has looked at its certificate.
std::string ReadFault(const error_code& error) {
  if (error.category() != boost::asio::error::get_ssl_category()) return error.message();
  const int alert = ERR_GET_REASON(static_cast<unsigned long>(error.value())) -  // NOLINT
                    SSL_AD_REASON_OFFSET;
  const bool about_certificate =
      (alert >= SSL_AD_NO_CERTIFICATE && alert <= SSL_AD_ACCESS_DENIED) ||
      alert == SSL_AD_CERTIFICATE_REQUIRED;
  if (!about_certificate) return error.message();
  return fmt::format(
      "the other end refuses this one's certificate (--tls-certificate): {}; its log says why",
      error.message());
}

}  // namespace

FrameStream::FrameStream(Channel channel)
    : channel_(std::move(channel)),
      peer_(PeerName(channel_.socket())),
      linger_(channel_.socket().get_executor()),
      in_(kBufferBytes) {}

void FrameStream::WatchHost(std::chrono::milliseconds silence) {
  const auto set = [&](int option, int value) {
    (void)setsockopt(channel_.socket().native_handle(), IPPROTO_TCP, option, &value, sizeof value);
  };
  // The kernel probes each second while the link is idle. The last option bounds the probes, and
  // the time that sent bytes may stay unacknowledged.
  set(TCP_KEEPIDLE, 1);
  set(TCP_KEEPINTVL, 1);
  set(TCP_USER_TIMEOUT, static_cast<int>(silence.count()));
}

bool FrameStream::peer_has_gone() {
  pollfd end{channel_.socket().native_handle(), POLLRDHUP, 0};
  return !closed_ && poll(&end, 1, 0) == 1;
}

void FrameStream::Start() {
  boost::asio::post(channel_.socket().get_executor(),
                    [self = shared_from_this()] { self->Read(); });
}

void FrameStream::Read() {
  if (closed_) return;
  paused_ = !MayRead();
  if (paused_) return;
  if (in_payload_ && in_begin_ == in_end_ && header_.length - done_ >= kDirectBytes) {
    into_ = Destination(header_, done_);
    into_ = into_.first(std::min<size_t>(into_.size(), header_.length - done_));
    channel_.ReadSome(boost::asio::buffer(into_.data(), into_.size()),
                      [self = shared_from_this()](const error_code& error, size_t count) {
                        self->OnRead(error, count, true);
                      });
    return;
  }
  if (in_begin_ > 0) {
    std::memmove(in_.data(), in_.data() + in_begin_, in_end_ - in_begin_);
    in_end_ -= in_begin_;
    in_begin_ = 0;
  }
  channel_.ReadSome(boost::asio::buffer(in_.data() + in_end_, in_.size() - in_end_),
                    [self = shared_from_this()](const error_code& error, size_t count) {
                      self->OnRead(error, count, false);
                    });
}

void FrameStream::ReadOn() {
  if (!paused_ || !MayRead()) return;
  paused_ = false;
  Parse();
  Read();
}

void FrameStream::OnRead(const error_code& error, size_t count, bool direct) {
  if (closed_) return;
  heard_ = heard_ || !error;
  if (error) {
    closed_unheard_ = !heard_ && IsClosing(error);
    if (finishing_) return Fail(absl::OkStatus());
    if (error == boost::asio::error::eof && !in_payload_ && in_begin_ == in_end_)
      return Fail(absl::OkStatus());
    if (error == boost::asio::error::eof) {
      return Fail(Error(absl::StatusCode::kUnavailable, "{} ended within a frame", peer_));
    }
    // The kernel ends the connections of a process that is killed; TLS does not.
    if (error == boost::asio::ssl::error::stream_truncated && !in_payload_ && in_begin_ == in_end_)
      return Fail(Error(absl::StatusCode::kAborted, "{} ended without a word", peer_));
    const bool silent = error == boost::asio::error::timed_out ||
                        error == boost::asio::error::host_unreachable ||
                        error == boost::asio::error::network_unreachable;
    return Fail(Error(silent ? absl::StatusCode::kDeadlineExceeded : absl::StatusCode::kUnavailable,
                      "link to {}: {}", peer_, ReadFault(error)));
  }
  if (finishing_) {
    in_begin_ = in_end_ = 0;
    in_payload_ = false;
  } else if (direct) {
    TookPayload(into_.first(count));
    if (done_ == header_.length && !EndFrame()) return;
  } else {
    in_end_ += count;
    Parse();
  }
  Read();
}

void FrameStream::Parse() {
  while (!closed_ && !finishing_) {
    if (!in_payload_ && !MayRead()) return;
    if (!in_payload_) {
      if (in_end_ - in_begin_ < kFrameHeaderBytes) return;
      auto header = DecodeFrameHeader(in_.data() + in_begin_);
      if (!header.ok()) return Fail(Annotate(header.status(), peer_));
      if (const size_t most = MaxPayload(header->type); header->length > most) {
        return Fail(InvalidArgument("{} sent a frame of type {} of {} bytes, which has at most {}",
                                    peer_, header->type, header->length, most));
      }
      header_ = *header;
      in_begin_ += kFrameHeaderBytes;
      in_payload_ = true;
      done_ = 0;
      crc_ = 0;
    }
    while (done_ < header_.length && in_begin_ < in_end_) {
      const std::span<char> into = Destination(header_, done_);
      const size_t count =
          std::min({into.size(), in_end_ - in_begin_, size_t{header_.length} - done_});
      std::memcpy(into.data(), in_.data() + in_begin_, count);
      in_begin_ += count;
      TookPayload(into.first(count));
    }
    if (done_ < header_.length || !EndFrame()) return;
  }
}

void FrameStream::TookPayload(std::span<const char> part) {
  crc_ = ExtendCrc32c(crc_, {part.data(), part.size()});
  done_ += part.size();
}

bool FrameStream::EndFrame() {
  in_payload_ = false;
  if (crc_ == header_.crc) {
    OnFrame(header_);
  } else {
    OnCorrupt(header_);
    Fail(Error(absl::StatusCode::kDataLoss,
               "a frame from {} has checksum {:#010x} instead of {:#010x}", peer_, crc_,
               header_.crc));
  }
  return !closed_;
}

void FrameStream::Kick() {
  if (kicked_ || writing_ || closed_) return;
  kicked_ = true;
  boost::asio::post(channel_.socket().get_executor(), [self = shared_from_this()] {
    self->kicked_ = false;
    self->Write();
  });
}

void FrameStream::Write() {
  if (closed_ || writing_) return;
  small_.clear();
  batch_.clear();
  buffers_.clear();
  size_t bytes = 0;
  std::vector<size_t> cuts;  // where in small_ the bytes that go before batch_[i] end
  OutFrame frame;
  for (size_t frames = 0; frames < kBatchFrames && bytes < kBatchBytes && NextFrame(frame);
       ++frames) {
    frame.header.length = static_cast<uint32_t>(frame.own.size() + frame.view.size());
    frame.header.crc =
        frame.crc.has_value() ? *frame.crc : ExtendCrc32c(Crc32c(frame.own), frame.view);
    const size_t at = small_.size();
    small_.resize(at + kFrameHeaderBytes);
    EncodeFrameHeader(frame.header, small_.data() + at);
    bytes += kFrameHeaderBytes + frame.header.length;
    if (!frame.view.empty()) small_.append(std::exchange(frame.own, {}));
    const std::string_view payload = frame.own.empty() ? frame.view : std::string_view(frame.own);
    if (payload.size() <= kCopyBytes) {
      small_.append(payload);
    } else {
      cuts.push_back(small_.size());
      batch_.push_back(std::move(frame));
    }
    frame = OutFrame();
  }
  ReadOn();
  if (bytes == 0) return AfterLastWrite();
  if (write_failed_)
    return Kick();  // drops the queued frames; the reading side reports that the peer is gone
  size_t from = 0;
  for (size_t i = 0; i < batch_.size(); ++i) {
    const std::string_view payload =
        batch_[i].own.empty() ? batch_[i].view : std::string_view(batch_[i].own);
    buffers_.emplace_back(small_.data() + from, cuts[i] - from);
    buffers_.emplace_back(payload.data(), payload.size());
    from = cuts[i];
  }
  if (from < small_.size()) buffers_.emplace_back(small_.data() + from, small_.size() - from);
  writing_ = true;
  batch_bytes_ = bytes;
  channel_.Write(buffers_, [self = shared_from_this()](const error_code& error, size_t) {
    self->OnWritten(error);
  });
}

void FrameStream::OnWritten(const error_code& error) {
  writing_ = false;
  batch_bytes_ = 0;
  batch_.clear();
  if (closed_) return;
  if (error) write_failed_ = true;
  Write();
}

void FrameStream::AfterLastWrite() {
  if (!finishing_ || std::exchange(told_end_, true)) return;
  channel_.EndWriting([self = shared_from_this()] {
    error_code ignored;
    if (!self->closed_) self->channel_.socket().shutdown(StreamSocket::shutdown_send, ignored);
  });
}

void FrameStream::FinishAndClose() {
  if (closed_ || finishing_) return;
  finishing_ = true;
  linger_.expires_after(kLinger);
  linger_.async_wait([self = shared_from_this()](const error_code& error) {
    if (!error) self->Fail(absl::OkStatus());
  });
  Kick();
}

void FrameStream::CloseNow() {
  if (closed_) return;
  closed_ = true;
  linger_.cancel();
  error_code ignored;
  channel_.socket().close(ignored);
}

void FrameStream::Fail(absl::Status status) {
  if (closed_) return;
  CloseNow();
  OnStreamClosed(std::move(status));
}

}  // namespace fairway
