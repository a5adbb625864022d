// SPDX-License-Identifier: Apache-2.0
#include "transport/data_server.h"

#include <algorithm>
#include <utility>

namespace fairway::data {

void ServerStream::Answer(uint64_t id, absl::StatusOr<DataView> answer) {
  if (closed()) return;
  const auto found = expected_.find(id);
  if (found == expected_.end()) return;
  const int64_t expected = found->second.bytes;
  expected_.erase(found);
  Outgoing out{.id = id, .error = answer.status(), .view = {}, .sent = 0};
  if (answer.ok()) {
    out.view = *std::move(answer);
    if (static_cast<int64_t>(out.view.bytes.size()) != expected) {
      out.error = Error(absl::StatusCode::kDataLoss, "the shard has {} bytes, {} were expected",
                        out.view.bytes.size(), expected);
      out.view = DataView();
    }
  }
  outgoing_.push_back(std::move(out));
  Kick();
}

bool ServerStream::NextFrame(OutFrame& frame) {
  if (outgoing_.empty()) return false;
  Outgoing out = std::move(outgoing_.front());
  outgoing_.pop_front();
  frame.header.id = out.id;
  if (!out.error.ok()) {
    frame.header.type = kError;
    frame.own = EncodeStatus(out.error);
    return true;
  }
  frame.header.type = kChunk;
  frame.header.offset = out.sent;
  frame.view = out.view.bytes.substr(out.sent, kChunkBytes);
  frame.owner = out.view.owner;
  out.sent += frame.view.size();
  if (out.sent == out.view.bytes.size()) {
    frame.header.flags = kLast;
    served_->fetch_add(out.sent, std::memory_order_relaxed);
  } else {
    outgoing_.push_back(std::move(out));
  }
  return true;
}

std::span<char> ServerStream::Destination(const FrameHeader& header, size_t done) {
  if (header.type == kPush && done < kPushNameBytes) {
    pushed_ = nullptr;
    return std::span(request_).subspan(done, kPushNameBytes - done);
  }
  if (header.type == kPush) {
    if (done == kPushNameBytes) {
      takes_ = Takes(header);
      if (takes_) pushed_ = Blob::Make(header.length - kPushNameBytes);
    }
    if (pushed_ != nullptr)
      return {pushed_->data() + (done - kPushNameBytes), header.length - done};
    // Not taken, or no memory: dropped in OnPushed. The name before these bytes is kept.
    return std::span(request_).subspan(kPushNameBytes);
  }
  if (done < request_.size()) return std::span(request_).subspan(done);
  return request_;  // too long: overwritten here, and refused in OnFrame
}

void ServerStream::OnFrame(const FrameHeader& header) {
  if (header.type == kPush) return OnPushed(header);
  if (header.type == kTakeBack) return OnTakenBack(header.id);
  if (header.type != kPull)
    return;  // from a later version: the puller gets no answer that it would not understand
  auto request = header.length > request_.size()
                     ? InvalidArgument("a pull request of {} bytes", header.length)
                     : DecodeRequest({request_.data(), header.length});
  expected_[header.id] = request.ok() ? Expected{request->bytes, request->request} : Expected{};
  if (!request.ok()) return Answer(header.id, request.status());
  if (request->incarnation != incarnation_) {
    return Answer(header.id,
                  Error(absl::StatusCode::kAborted, "the request is for incarnation {}, this is {}",
                        request->incarnation, incarnation_));
  }
  if (absl::Status status = CheckTicketOf(request->request); !status.ok()) {
    refused_(status);
    return Answer(header.id, std::move(status));
  }
  Known();
  on_pull_(std::static_pointer_cast<ServerStream>(shared_from_this()), header.id, request->request);
}

absl::Status ServerStream::CheckTicketOf(const PullRequest& request) const {
  return request.round != 0 ? CheckGangTicket(gang_ticket_, request.from, request.ticket)
                            : CheckTicket(key_, request.transfer, request.from, request.ticket);
}

bool ServerStream::Takes(const FrameHeader& header) {
  const WirePush push = DecodePush(request_.data());
  if (push.to != incarnation_ || !on_push_) return false;
  absl::Status status = CheckGangTicket(gang_ticket_, push.name.from, push.ticket);
  if (status.ok()) return true;
  refused_(status);
  outgoing_.push_back({.id = header.id, .error = std::move(status), .view = {}, .sent = 0});
  Kick();
  return false;
}

void ServerStream::Known() {
  if (const auto known = std::exchange(known_, nullptr); known != nullptr) known();
}

void ServerStream::OnTakenBack(uint64_t id) {
  std::erase_if(outgoing_, [id](const Outgoing& out) { return out.id == id; });
  const auto taken = expected_.extract(id);
  if (!taken.empty() && on_taken_back_) on_taken_back_(taken.mapped().request);
}

void ServerStream::OnPushed(const FrameHeader& header) {
  std::shared_ptr<Blob> bytes = std::exchange(pushed_, nullptr);
  if (header.length < kPushNameBytes) return;
  if (header.length == kPushNameBytes) {  // no byte of it had a destination
    takes_ = Takes(header);
    bytes = Blob::Make(0);
  }
  if (!takes_ || bytes == nullptr) return;
  const WirePush push = DecodePush(request_.data());
  Known();
  if (!on_push_(push.name, bytes)) held_ = Held{push.name, std::move(bytes)};
}

void ServerStream::RetryPush() {
  if (!held_.has_value()) return;
  if (!on_push_(held_->name, held_->bytes)) {
    // Its end is not read while its push is held.
    if (peer_has_gone()) Fail(absl::UnavailableError("it has gone, and its pushes found no room"));
    return;
  }
  held_.reset();
  Kick();  // reads on
}

void ServerStream::OnStreamClosed(absl::Status status) {
  outgoing_.clear();
  expected_.clear();
  held_.reset();
  on_end_(this);
}

}  // namespace fairway::data
