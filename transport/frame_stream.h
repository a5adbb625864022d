// SPDX-License-Identifier: Apache-2.0
// Frames over one connected stream socket: the common part of control links and the data plane.
// Only .cc files and headers of this folder include it, because it includes Asio.
#ifndef FAIRWAY_TRANSPORT_FRAME_STREAM_H_
#define FAIRWAY_TRANSPORT_FRAME_STREAM_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <boost/asio/buffer.hpp>
#include <boost/asio/steady_timer.hpp>

#include "base/status.h"
#include "transport/connect.h"
#include "transport/frame.h"

namespace fairway {

// Lives on the thread of its io_context. Its own pending reads and writes keep it alive. A derived
// class gives the frames to send and the destination of received bytes, so that bulk data goes
// straight there.
class FrameStream : public std::enable_shared_from_this<FrameStream> {
 public:
  // A frame to send. Its payload is `own`, followed by `view`, which lives as long as `owner`: one
  // of both is empty, or `own` is short and copied. The header's
  // length and crc are filled in here, the latter with `crc` where that is known.
  struct OutFrame {
    FrameHeader header;
    std::string own;
    std::string_view view;
    std::shared_ptr<const void> owner;
    std::optional<uint32_t> crc = std::nullopt;
  };

  explicit FrameStream(Channel channel);
  virtual ~FrameStream() = default;
  FrameStream(const FrameStream&) = delete;
  FrameStream& operator=(const FrameStream&) = delete;

  // Begins to read. Calls no virtual function before it returns.
  void Start();
  // Says that NextFrame has a frame. Writes in a later handler, so that the frames of one turn
  // leave together.
  void Kick();
  // Sends the frames that NextFrame still gives, then closes; OnStreamClosed(OK) comes. Meanwhile
  // it reads and drops the peer's frames, because closing with unread bytes would reset the
  // connection and lose the last frames.
  void FinishAndClose();
  // Closes; calls no virtual function any more.
  void CloseNow();

  // Like Link::WatchHost.
  void WatchHost(std::chrono::milliseconds silence);

  const std::string& peer() const { return peer_; }
  // Who the peer is; nullopt: nobody knows, since there is no TLS.
  const std::optional<Subject>& subject() const { return channel_.peer(); }
  const CertificateHash& certificate() const { return channel_.certificate(); }
  bool closed() const { return closed_; }
  // The peer closed the connection before a byte of it had come.
  bool closed_unheard() const { return closed_unheard_; }
  // The bytes taken from NextFrame and not yet written.
  size_t batch_bytes() const { return batch_bytes_; }
  // Returns whether the peer has closed its end, even if bytes that it sent before were not read.
  bool peer_has_gone();
  boost::asio::any_io_executor executor() { return channel_.socket().get_executor(); }

 protected:
  // Returns the next frame to send; false: there is none now.
  virtual bool NextFrame(OutFrame& frame) = 0;
  // Returns where the payload's bytes from `done` on go: at least one byte, perhaps fewer than
  // remain. Called for each piece, so once per frame with 0. Valid until the next virtual function
  // is called.
  virtual std::span<char> Destination(const FrameHeader& header, size_t done) = 0;
  // False: stop reading from the peer until enough of the queued bytes have left. So a peer that
  // asks without reading does not fill the memory. Called before each read and each frame, and
  // after each write.
  virtual bool MayRead() const { return true; }
  // The longest payload of frames of this type; a longer one ends the stream.
  virtual size_t MaxPayload(uint8_t type) const { return kMaxFrameBytes; }
  // The payload is complete and has the right checksum.
  virtual void OnFrame(const FrameHeader& header) = 0;
  // The payload of this frame has a wrong checksum; the stream closes after this call.
  virtual void OnCorrupt(const FrameHeader& header) {}
  // Called once, unless CloseNow was called.
  virtual void OnStreamClosed(absl::Status status) = 0;
  // Closes; OnStreamClosed comes.
  void Fail(absl::Status status);

 private:
  void Read();
  void ReadOn();
  void OnRead(const boost::system::error_code& error, size_t count, bool direct);
  // Takes frames out of the buffer.
  void Parse();
  void TookPayload(std::span<const char> part);
  // False: the stream was closed.
  bool EndFrame();
  void Write();
  void OnWritten(const boost::system::error_code& error);
  void AfterLastWrite();

  static constexpr size_t kBufferBytes = 64 << 10;
  static constexpr size_t kDirectBytes =
      16 << 10;  // a payload with more to come is read into its destination
  // a payload up to this size is copied after its header
  static constexpr size_t kCopyBytes = 4 << 10;
  static constexpr size_t kBatchBytes = 1 << 20;
  static constexpr size_t kBatchFrames = 512;

  Channel channel_;
  const std::string peer_;
  boost::asio::steady_timer linger_;
  bool closed_ = false;
  bool heard_ = false;  // a byte has come
  bool closed_unheard_ = false;
  bool finishing_ = false;
  bool told_end_ = false;  // the peer is told that nothing more comes
  bool kicked_ = false;
  bool writing_ = false;
  bool write_failed_ = false;
  bool paused_ = false;  // MayRead returned false

  std::vector<char> in_;  // in_[in_begin_ .. in_end_) is unparsed
  size_t in_begin_ = 0;
  size_t in_end_ = 0;
  bool in_payload_ = false;
  FrameHeader header_;
  size_t done_ = 0;
  std::span<char> into_;  // the destination of the read under way, if it goes straight there
  uint32_t crc_ = 0;

  size_t batch_bytes_ = 0;
  std::string small_;            // headers and small payloads of the batch being written
  std::vector<OutFrame> batch_;  // owners of the larger payloads
  std::vector<boost::asio::const_buffer> buffers_;
};

}  // namespace fairway

#endif  // FAIRWAY_TRANSPORT_FRAME_STREAM_H_
