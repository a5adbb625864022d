// SPDX-License-Identifier: Apache-2.0
#include "worker/executor/client_calls.h"

#include <algorithm>
#include <utility>

#include <absl/cleanup/cleanup.h>

namespace fairway {
namespace {

CallbackArray ArrayOf(const ffi::Value& value) {
  return {value.dtype, Shape{{value.dims.begin(), value.dims.end()}}, nullptr};
}

// Leaves out tokens, which only order calls.
CallbackCall CallOf(const ffi::Call& call) {
  CallbackCall out;
  out.function = static_cast<uint64_t>(ffi::AttributeOr(call, "function", 0));
  out.device = static_cast<int32_t>(call.device);
  for (const ffi::Value& value : call.rets) {
    if (value.dtype != DType::kToken) out.results.push_back(ArrayOf(value));
  }
  for (const ffi::Value& value : call.args) {
    if (value.dtype != DType::kToken) out.arguments.push_back(ArrayOf(value));
  }
  return out;
}

// The bytes of arguments and results.
absl::StatusOr<int64_t> BytesOf(const CallbackCall& call) {
  FAIRWAY_ASSIGN_OR_RETURN(const int64_t given, CallbackBytes(call.arguments));
  FAIRWAY_ASSIGN_OR_RETURN(const int64_t wanted, CallbackBytes(call.results));
  if (std::max(given, wanted) > kMaxCallbackBytes) {
    return Error(absl::StatusCode::kResourceExhausted,
                 "a callback with {} bytes of arguments and {} of results: each may have at most "
                 "{}. Call it with less, such as a slice or a sum",
                 given, wanted, kMaxCallbackBytes);
  }
  return given + wanted;
}

absl::Status CopyArguments(const ffi::Call& call, CallbackCall& asked) {
  size_t next = 0;
  for (const ffi::Value& value : call.args) {
    if (value.dtype == DType::kToken) continue;
    CallbackArray& to = asked.arguments[next++];
    FAIRWAY_ASSIGN_OR_RETURN(const int64_t size, ByteSize(to.dtype, to.shape));
    const std::shared_ptr<Blob> bytes = Blob::Make(static_cast<size_t>(size));
    if (bytes == nullptr)
      return absl::ResourceExhaustedError("no host memory for the arguments of a callback");
    ffi::ReadElements(value, bytes->data());
    to.bytes = bytes;
  }
  return absl::OkStatus();
}

absl::Status CopyResults(const CallbackCall& asked, const CallbackAnswer& answer,
                         const ffi::Call& call) {
  if (answer.results.size() != asked.results.size())
    return Error(absl::StatusCode::kInternal, "{} results came of a callback, {} were wanted",
                 answer.results.size(), asked.results.size());
  size_t next = 0;
  for (const ffi::Value& value : call.rets) {
    if (value.dtype == DType::kToken) continue;
    const CallbackArray& wanted = asked.results[next];
    if (answer.results[next] == nullptr) return absl::InternalError("a result without bytes");
    const Blob& came = *answer.results[next++];
    FAIRWAY_ASSIGN_OR_RETURN(const int64_t size, ByteSize(wanted.dtype, wanted.shape));
    if (static_cast<int64_t>(came.size()) != size)
      return Error(absl::StatusCode::kInternal, "{} bytes came for a result {} of a callback",
                   came.size(), ToString(wanted.dtype, wanted.shape));
    ffi::WriteElements(came.data(), value);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ClientCalls::Run(uint64_t launch_id, const ffi::Call& call) {
  CallbackCall asked = CallOf(call);
  asked.launch = LaunchId(launch_id);
  FAIRWAY_ASSIGN_OR_RETURN(const int64_t bytes, BytesOf(asked));
  FAIRWAY_RETURN_IF_ERROR(Reserve(bytes));
  const absl::Cleanup release = [&] {
    const std::lock_guard lock(mutex_);
    bytes_ -= bytes;
  };
  FAIRWAY_RETURN_IF_ERROR(CopyArguments(call, asked));
  FAIRWAY_ASSIGN_OR_RETURN(const CallbackAnswer answer, Ask(asked));
  return CopyResults(asked, answer, call);
}

absl::Status ClientCalls::Reserve(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (bytes > kMaxWaitingBytes - bytes_)
    return Error(absl::StatusCode::kResourceExhausted,
                 "callbacks under way on this executor have {} bytes of arguments and results; {} "
                 "more would pass the limit of {}",
                 bytes_, bytes, kMaxWaitingBytes);
  bytes_ += bytes;
  return absl::OkStatus();
}

absl::StatusOr<CallbackAnswer> ClientCalls::Ask(CallbackCall& asked) {
  std::unique_lock lock(mutex_);
  if (!closed_.ok()) return closed_;
  asked.call = next_call_++;
  Waiting& waiting = waiting_[asked.call];
  // runs before the lock is released
  const absl::Cleanup forget = [&] { waiting_.erase(asked.call); };
  waiting.launch = asked.launch;
  for (const CallbackArray& result : asked.results)
    waiting.wanted.push_back(ByteSize(result.dtype, result.shape).value_or(0));
  if (CallbackBytes(asked.arguments).value_or(0) > kInlineCallbackBytes) {
    waiting.arguments = asked.arguments;
    for (CallbackArray& argument : asked.arguments) argument.bytes = nullptr;
  }
  handler_.send(asked);
  waiting.ended.wait(lock, [&] { return waiting.answer.has_value(); });
  FAIRWAY_RETURN_IF_ERROR(waiting.answer->status);
  return *std::move(waiting.answer);
}

std::shared_ptr<const Blob> ClientCalls::Argument(uint64_t call, int32_t index) const {
  const std::lock_guard lock(mutex_);
  const auto it = waiting_.find(call);
  if (it == waiting_.end() || index < 0 ||
      static_cast<size_t>(index) >= it->second.arguments.size())
    return nullptr;
  return it->second.arguments[index].bytes;
}

std::optional<std::vector<int64_t>> ClientCalls::Wanted(uint64_t call) const {
  const std::lock_guard lock(mutex_);
  const auto it = waiting_.find(call);
  if (it == waiting_.end() || it->second.answer.has_value()) return std::nullopt;
  return it->second.wanted;
}

void ClientCalls::Answered(CallbackAnswer answer) {
  const std::lock_guard lock(mutex_);
  const auto it = waiting_.find(answer.call);
  if (it == waiting_.end() || it->second.answer.has_value()) return;
  it->second.answer = std::move(answer);
  it->second.ended.notify_one();
}

void ClientCalls::Abandon(LaunchId first, LaunchId last, const absl::Status& cause) {
  const std::lock_guard lock(mutex_);
  for (auto& [id, waiting] : waiting_) {
    if (waiting.launch < first || waiting.launch > last || waiting.answer.has_value()) continue;
    waiting.answer = CallbackAnswer{id, cause, {}, {}, {}};
    waiting.ended.notify_one();
    handler_.give_up(id);
  }
}

void ClientCalls::Close(const absl::Status& cause) {
  const std::lock_guard lock(mutex_);
  if (closed_.ok()) closed_ = cause;
  for (auto& [id, waiting] : waiting_) {
    if (waiting.answer.has_value()) continue;
    waiting.answer = CallbackAnswer{id, cause, {}, {}, {}};
    waiting.ended.notify_one();
  }
}

size_t ClientCalls::num_waiting() const {
  const std::lock_guard lock(mutex_);
  return waiting_.size();
}

}  // namespace fairway
