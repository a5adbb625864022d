// SPDX-License-Identifier: Apache-2.0
#include "transport/data_client.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace fairway::data {
namespace {

// transfer u64, index i32, round u32, incarnation u64, bytes i64, the puller's incarnation u64, the
// ticket.
constexpr size_t kRequestBytes = 56;

}  // namespace

std::string Encode(const WireRequest& request) {
  std::string out(kRequestBytes, '\0');
  const uint64_t transfer = request.request.transfer.value;
  const uint64_t incarnation = request.incarnation.value;
  std::memcpy(out.data(), &transfer, 8);
  std::memcpy(out.data() + 8, &request.request.index, 4);
  std::memcpy(out.data() + 12, &request.request.round, 4);
  std::memcpy(out.data() + 16, &incarnation, 8);
  std::memcpy(out.data() + 24, &request.bytes, 8);
  std::memcpy(out.data() + 32, &request.request.from.value, 8);
  std::memcpy(out.data() + 40, &request.request.ticket, 16);
  return out;
}

absl::StatusOr<WireRequest> DecodeRequest(std::string_view payload) {
  if (payload.size() != kRequestBytes)
    return InvalidArgument(
        "a pull request of {} bytes, {} with its ticket are expected: who asks "
        "is of another version",
        payload.size(), kRequestBytes);
  WireRequest request;
  std::memcpy(&request.request.transfer.value, payload.data(), 8);
  std::memcpy(&request.request.index, payload.data() + 8, 4);
  std::memcpy(&request.request.round, payload.data() + 12, 4);
  std::memcpy(&request.incarnation.value, payload.data() + 16, 8);
  std::memcpy(&request.bytes, payload.data() + 24, 8);
  std::memcpy(&request.request.from.value, payload.data() + 32, 8);
  std::memcpy(&request.request.ticket, payload.data() + 40, 16);
  if (request.bytes < 0) return InvalidArgument("a pull request expects {} bytes", request.bytes);
  return request;
}

std::string Encode(const WirePush& push, std::string_view bytes) {
  std::string out(kPushNameBytes, '\0');
  out.reserve(kPushNameBytes + bytes.size());
  std::memcpy(out.data(), &push.name.launch, 8);
  std::memcpy(out.data() + 8, &push.name.round, 4);
  std::memcpy(out.data() + 12, &push.name.part, 4);
  std::memcpy(out.data() + 16, &push.to.value, 8);
  std::memcpy(out.data() + 24, &push.name.from.value, 8);
  std::memcpy(out.data() + 32, &push.ticket, 16);
  out.append(bytes);
  return out;
}

WirePush DecodePush(const char* payload) {
  WirePush push;
  std::memcpy(&push.name.launch, payload, 8);
  std::memcpy(&push.name.round, payload + 8, 4);
  std::memcpy(&push.name.part, payload + 12, 4);
  std::memcpy(&push.to.value, payload + 16, 8);
  std::memcpy(&push.name.from.value, payload + 24, 8);
  std::memcpy(&push.ticket, payload + 32, 16);
  return push;
}

std::string EncodeStatus(const absl::Status& status) {
  const auto code = static_cast<uint32_t>(status.code());
  std::string text = Text(status);
  text.resize(std::min(text.size(), kMaxControlBytes - sizeof code));
  std::string out(sizeof code, '\0');
  std::memcpy(out.data(), &code, sizeof code);
  return out + text;
}

absl::Status DecodeStatus(std::string_view payload) {
  uint32_t code = 0;
  if (payload.size() < sizeof code) return absl::InternalError("unreadable error from the peer");
  std::memcpy(&code, payload.data(), sizeof code);
  if (code == 0 || code > 16) code = static_cast<uint32_t>(absl::StatusCode::kInternal);
  payload.remove_prefix(sizeof code);
  return Error(static_cast<absl::StatusCode>(code), "{}", payload);
}

void ClientStream::Pull(PendingPull pull) {
  const uint64_t id = next_id_++;
  unsent_.emplace_back(id, pull.request);
  by_transfer_.emplace(pull.request.request.transfer, id);
  pulls_.emplace(id, std::move(pull));
  Kick();
}

void ClientStream::TakeBack(TransferId transfer) {
  while (true) {
    const auto next = by_transfer_.lower_bound({transfer, 0});
    if (next == by_transfer_.end() || next->first != transfer) return Kick();
    const uint64_t id = next->second;
    const bool sent = unsent_.empty() || id < unsent_.front().first;
    if (sent) taken_back_.push_back(id);
    End(id, absl::CancelledError("it was taken back"));
  }
}

void ClientStream::Push(PendingPush push) {
  pushes_.push_back(std::move(push));
  Kick();
}

bool ClientStream::NextFrame(OutFrame& frame) {
  if (!pushes_.empty()) {
    frame.header.type = kPush;
    frame.own = std::move(pushes_.front().payload);
    frame.owner = std::move(pushes_.front().pending);
    pushes_.pop_front();
    return true;
  }
  while (!unsent_.empty() && !pulls_.contains(unsent_.front().first)) unsent_.pop_front();
  if (!taken_back_.empty()) {
    frame.header.type = kTakeBack;
    frame.header.id = taken_back_.front();
    taken_back_.pop_front();
    return true;
  }
  if (unsent_.empty()) return false;
  const auto& [id, request] = unsent_.front();
  frame.header.type = kPull;
  frame.header.id = id;
  frame.own = Encode(request);
  unsent_.pop_front();
  return true;
}

bool ClientStream::Takes(const FrameHeader& header) {
  const auto found = pulls_.find(header.id);
  if (header.type != kChunk || found == pulls_.end()) return false;
  PendingPull& pull = found->second;
  const auto expected = static_cast<uint64_t>(pull.request.bytes);
  if (header.offset != pull.received || header.length > expected - pull.received) {
    End(header.id, Error(absl::StatusCode::kDataLoss,
                         "{} sent {} bytes of a shard from byte {} on; expected byte {} of {}",
                         endpoint_, header.length, header.offset, pull.received, expected));
    return false;
  }
  if (pull.blob != nullptr) return true;
  auto block = blocks_->Take(expected);
  if (!block.ok()) {
    End(header.id, Annotate(block.status(), "to receive a shard"));
    return false;
  }
  pull.blob = *std::move(block);
  return true;
}

std::span<char> ClientStream::Destination(const FrameHeader& header, size_t done) {
  // Decided once per frame: a pull that begins in the middle of a frame has nothing to do with it.
  if (done == 0) takes_ = Takes(header);
  // It may have been taken back since the frame began.
  const auto found = takes_ ? pulls_.find(header.id) : pulls_.end();
  if (found != pulls_.end()) {
    into_ = found->second.blob;
    return {into_->data() + header.offset + done, header.length - done};
  }
  into_ = nullptr;
  // Errors are kept whole. A chunk that nobody wants may be longer; it overwrites itself.
  scratch_.resize(kMaxControlBytes);
  return std::span(scratch_).subspan(done % kMaxControlBytes);
}

void ClientStream::OnFrame(const FrameHeader& header) {
  into_ = nullptr;
  if (header.length == 0) takes_ = Takes(header);
  const auto found = pulls_.find(header.id);
  if (found == pulls_.end()) return;
  if (header.type == kError) {
    scratch_.resize(kMaxControlBytes);
    End(header.id, DecodeStatus({scratch_.data(), header.length}));
  } else if (takes_) {
    OnChunk(header, found->second);
  }
}

void ClientStream::OnChunk(const FrameHeader& header, PendingPull& pull) {
  pull.received += header.length;
  if ((header.flags & kLast) == 0) return;
  const auto expected = static_cast<uint64_t>(pull.request.bytes);
  if (pull.received != expected) {
    return End(header.id, Error(absl::StatusCode::kDataLoss, "{} sent {} bytes of a shard of {}",
                                endpoint_, pull.received, expected));
  }
  End(header.id, absl::OkStatus());
}

void ClientStream::OnCorrupt(const FrameHeader& header) {
  End(header.id,
      Error(absl::StatusCode::kDataLoss, "bytes from {} do not match their checksum", endpoint_));
}

void ClientStream::End(uint64_t id, absl::Status status) {
  const auto found = pulls_.find(id);
  if (found == pulls_.end()) return;
  PendingPull pull = std::move(found->second);
  pulls_.erase(found);
  by_transfer_.erase({pull.request.request.transfer, id});
  if (!status.ok()) return pull.done(std::move(status));
  if (pull.blob == nullptr) pull.blob = Blob::Make(0);
  if (pull.blob == nullptr) return pull.done(absl::ResourceExhaustedError("no host memory"));
  pulled_->fetch_add(pull.received, std::memory_order_relaxed);
  pull.done(std::move(pull.blob));
}

void ClientStream::OnStreamClosed(absl::Status status) {
  unsent_.clear();
  taken_back_.clear();
  pushes_.clear();
  const absl::Status why =
      Error(absl::StatusCode::kUnavailable, "lost {} while pulling: {}", endpoint_,
            status.ok() ? "it closed the connection" : Text(status));
  std::vector<PendingPull> unheard;
  if (closed_unheard()) {
    by_transfer_.clear();
    for (auto& [_, pull] : std::exchange(pulls_, {})) unheard.push_back(std::move(pull));
  }
  while (!pulls_.empty()) End(pulls_.begin()->first, why);
  on_end_(std::move(unheard), why);
}

}  // namespace fairway::data
