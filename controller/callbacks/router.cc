// SPDX-License-Identifier: Apache-2.0
#include "controller/callbacks/router.h"

#include <algorithm>
#include <utility>

namespace fairway {

// ---- Sessions and streams ----

void CallbackRouter::SessionOpened(SessionId session, CallbackChannel channel) {
  ++channels_[channel];
  const auto [it, fresh] = sessions_.try_emplace(session);
  if (!fresh) Release(it->second.channel);
  it->second.channel = std::move(channel);
}

bool CallbackRouter::Release(const CallbackChannel& channel) {
  const auto it = channels_.find(channel);
  if (it == channels_.end() || --it->second > 0) return false;
  channels_.erase(it);
  return true;
}

absl::Status CallbackRouter::NoSession() {
  return Error(absl::StatusCode::kFailedPrecondition,
               "no open session has this channel: open the session first, with the channel as "
               "\"{}\" of its initialization data",
               kChannelAttribute);
}

void CallbackRouter::SessionClosed(SessionId session) {
  const auto closed = sessions_.extract(session);
  for (const uint64_t key : Those([&](const Call& call) { return call.session == session; }))
    End(key, absl::CancelledError("the session that launched it has ended"), true);
  if (closed.empty() || !Release(closed.mapped().channel)) return;
  const auto stream = serving_.find(closed.mapped().channel);
  if (stream != serving_.end()) actions_->EndStream(stream->second, NoSession());
}

absl::Status CallbackRouter::StreamOpened(uint64_t stream, const CallbackChannel& channel) {
  if (channel.bytes.size() != kChannelBytes)
    return InvalidArgument("a channel has {} bytes, this one {}", kChannelBytes,
                           channel.bytes.size());
  if (!channels_.contains(channel)) return NoSession();
  if (serving_.contains(channel))
    return Error(absl::StatusCode::kAlreadyExists, "another stream serves this channel");
  if (streams_.size() >= limits_.streams)
    return Error(absl::StatusCode::kResourceExhausted, "{} streams for callbacks are open",
                 streams_.size());
  streams_[stream].channel = channel;
  serving_[channel] = stream;
  return absl::OkStatus();
}

void CallbackRouter::StreamClosed(uint64_t stream) {
  const auto it = streams_.find(stream);
  if (it == streams_.end()) return;
  for (const uint64_t key : Those([&](const Call& call) { return call.stream == stream; })) {
    End(key,
        absl::UnavailableError("the client's process ended, or lost its connection, while its "
                               "function was called"),
        false);
  }
  serving_.erase(it->second.channel);
  streams_.erase(it);
}

absl::Status CallbackRouter::Returned(uint64_t stream, uint64_t number, absl::Status status,
                                      std::vector<CallbackArray> results) {
  const auto at = streams_.find(stream);
  if (at == streams_.end()) return absl::OkStatus();
  if (number == 0 || number > at->second.calls)
    return InvalidArgument("the answer to call {}, which was never made", number);
  ++at->second.answers;
  at->second.silent = false;
  const auto wait = at->second.waits.find(number);
  if (wait == at->second.waits.end()) return absl::OkStatus();
  const Call call = Take(wait->second);
  if (status.ok()) status = CheckResults(call.asked.results, results);
  CallbackAnswer answer{call.call, Bounded(std::move(status)), {}, {}};
  if (answer.status.ok()) {
    for (CallbackArray& result : results) answer.results.push_back(std::move(result.bytes));
  }
  actions_->Answer(call.executor, std::move(answer));
  return absl::OkStatus();
}

const std::vector<CallbackArray>* CallbackRouter::Wanted(uint64_t stream, uint64_t number) const {
  const auto at = streams_.find(stream);
  if (at == streams_.end()) return nullptr;
  const auto wait = at->second.waits.find(number);
  return wait == at->second.waits.end() ? nullptr : &calls_.at(wait->second).asked.results;
}

absl::Status CallbackRouter::CheckResults(const std::vector<CallbackArray>& wanted,
                                          const std::vector<CallbackArray>& came) {
  if (came.size() != wanted.size())
    return InvalidArgument("the function returned {} arrays, the program expects {}", came.size(),
                           wanted.size());
  for (size_t i = 0; i < came.size(); ++i) {
    if (came[i].dtype != wanted[i].dtype || came[i].shape != wanted[i].shape)
      return InvalidArgument("the function returned {} as result {}, the program expects {}",
                             ToString(came[i].dtype, came[i].shape), i,
                             ToString(wanted[i].dtype, wanted[i].shape));
    FAIRWAY_ASSIGN_OR_RETURN(const int64_t size, ByteSize(wanted[i].dtype, wanted[i].shape));
    const size_t bytes = came[i].bytes == nullptr ? 0 : came[i].bytes->size();
    if (came[i].bytes == nullptr || static_cast<int64_t>(bytes) != size)
      return InvalidArgument("the function returned {} bytes as result {}, {} has {}", bytes, i,
                             ToString(wanted[i].dtype, wanted[i].shape), size);
  }
  return absl::OkStatus();
}

// ---- Executors ----

absl::StatusOr<uint64_t> CallbackRouter::StreamFor(const CallbackCaller& caller) const {
  const auto session = sessions_.find(caller.session);
  if (session == sessions_.end() || session->second.channel.bytes.empty()) {
    return Error(absl::StatusCode::kFailedPrecondition,
                 "it calls a function of its client, whose session takes no callbacks, or has "
                 "ended: callbacks need the fairway package in the client's process, with the "
                 "version of this cluster");
  }
  if (session->second.channel.bytes.size() != kChannelBytes)
    return InvalidArgument("\"{}\" of the session has {} bytes, expected {}", kChannelAttribute,
                           session->second.channel.bytes.size(), kChannelBytes);
  const auto stream = serving_.find(session->second.channel);
  if (stream != serving_.end() && streams_.at(stream->second).silent)
    return Annotate(TooLate(), "an earlier call");
  if (stream != serving_.end()) return stream->second;
  return Error(absl::StatusCode::kUnavailable,
               "it calls a function of its client, whose stream for callbacks is not open: the "
               "process has ended, or lost its connection to the controller");
}

absl::Status CallbackRouter::Room(SessionId session, int64_t bytes) const {
  const auto it = loads_.find(session);
  const Load load = it == loads_.end() ? Load{} : it->second;
  if (load.calls >= limits_.session_calls)
    return Error(absl::StatusCode::kResourceExhausted,
                 "{} callbacks of the session are under way, and no more may be", load.calls);
  if (bytes > limits_.session_bytes - load.bytes)
    return Error(absl::StatusCode::kResourceExhausted,
                 "callbacks of the session that are under way have {} bytes, {} more are too many: "
                 "at most {}",
                 load.bytes, bytes, limits_.session_bytes);
  if (bytes > limits_.total_bytes - bytes_)
    return Error(absl::StatusCode::kResourceExhausted,
                 "callbacks of all sessions that are under way have {} bytes, {} more are too "
                 "many: at most {}; {} are of this session",
                 bytes_, bytes, limits_.total_bytes, load.bytes);
  return absl::OkStatus();
}

void CallbackRouter::Called(int64_t now_ms, ExecutorId executor, CallbackCall call,
                            absl::StatusOr<CallbackCaller> caller) {
  const auto refuse = [&](absl::Status why) {
    actions_->Answer(executor, {call.call, std::move(why), {}, {}});
  };
  if (!caller.ok()) return refuse(caller.status());
  if (by_executor_.contains({executor, call.call}))
    return refuse(Error(absl::StatusCode::kInternal, "the executor made call {} twice", call.call));
  const auto stream = StreamFor(*caller);
  if (!stream.ok()) return refuse(stream.status());
  const auto given = CallbackBytes(call.arguments), wanted = CallbackBytes(call.results);
  if (!given.ok() || !wanted.ok()) return refuse(given.ok() ? wanted.status() : given.status());
  int64_t bytes = 0;
  if (__builtin_add_overflow(*given, *wanted, &bytes))
    return refuse(absl::InvalidArgumentError("arrays of too many bytes"));
  if (absl::Status room = Room(caller->session, bytes); !room.ok()) return refuse(std::move(room));

  const uint64_t key = next_key_++;
  const int64_t due = limits_.call_ms > 0 ? now_ms + limits_.call_ms : 0;
  if (due > 0) due_.emplace(due, key);
  by_executor_.emplace(std::pair(executor, call.call), key);
  Load& load = loads_[caller->session];
  ++load.calls;
  load.bytes += bytes;
  bytes_ += bytes;
  const auto made = calls_.emplace(key, Call{executor, call.call, caller->session, *stream, 0, 0,
                                             due, bytes, *std::move(caller), std::move(call)});
  const CallbackCall& asked = made.first->second.asked;
  const bool all_here = std::all_of(asked.arguments.begin(), asked.arguments.end(),
                                    [](const CallbackArray& a) { return a.bytes != nullptr; });
  if (all_here) return Send(key);
  actions_->FetchArguments(executor, asked);
}

void CallbackRouter::Send(uint64_t key) {
  Call& call = calls_.at(key);
  Stream& to = streams_.at(call.stream);
  call.number = ++to.calls;
  call.answers = to.answers;
  to.waits.emplace(call.number, key);
  const absl::Status sent = actions_->SendCall(call.stream, call.number, call.asked, call.caller);
  call.asked.arguments.clear();
  if (!sent.ok()) End(key, sent, false);
}

void CallbackRouter::ArgumentsCame(ExecutorId executor, uint64_t number,
                                   absl::StatusOr<std::vector<std::shared_ptr<const Blob>>> bytes) {
  const auto it = by_executor_.find({executor, number});
  if (it == by_executor_.end()) return;
  const uint64_t key = it->second;
  if (calls_.at(key).number != 0) return;
  std::vector<CallbackArray>& arguments = calls_.at(key).asked.arguments;
  if (bytes.ok() && bytes->size() != arguments.size())
    bytes = Error(absl::StatusCode::kInternal, "{} arguments of {} came", bytes->size(),
                  arguments.size());
  if (!bytes.ok()) return End(key, bytes.status(), false);
  for (size_t i = 0; i < arguments.size(); ++i) {
    CallbackArray& argument = arguments[i];
    if (argument.bytes != nullptr) continue;
    const int64_t size = ByteSize(argument.dtype, argument.shape).value_or(0);
    const int64_t came = bytes->at(i) == nullptr ? 0 : static_cast<int64_t>(bytes->at(i)->size());
    if (bytes->at(i) == nullptr || came != size)
      return End(key,
                 Error(absl::StatusCode::kInternal, "{} bytes of argument {} came, {} has {}", came,
                       i, ToString(argument.dtype, argument.shape), size),
                 false);
    argument.bytes = std::move(bytes->at(i));
  }
  Send(key);
}

CallbackRouter::Call CallbackRouter::Take(uint64_t key) {
  Call call = std::move(calls_.extract(key).mapped());
  if (call.number != 0) streams_.at(call.stream).waits.erase(call.number);
  by_executor_.erase({call.executor, call.call});
  due_.erase({call.due_ms, key});
  const auto load = loads_.find(call.session);
  load->second.bytes -= call.bytes;
  bytes_ -= call.bytes;
  if (--load->second.calls == 0) loads_.erase(load);
  return call;
}

void CallbackRouter::End(uint64_t key, const absl::Status& status, bool tell_client) {
  const Call call = Take(key);
  if (tell_client && call.number != 0) actions_->SendCancel(call.stream, call.number, Text(status));
  actions_->Answer(call.executor, {call.call, status, {}, {}});
}

template <typename Which>
std::vector<uint64_t> CallbackRouter::Those(Which which) const {
  std::vector<uint64_t> keys;
  for (const auto& [key, call] : calls_) {
    if (which(call)) keys.push_back(key);
  }
  return keys;
}

void CallbackRouter::GivenUp(ExecutorId executor, uint64_t number) {
  const auto it = by_executor_.find({executor, number});
  if (it == by_executor_.end()) return;
  const Call call = Take(it->second);
  if (call.number != 0) actions_->SendCancel(call.stream, call.number, "its launch was given up");
}

void CallbackRouter::ExecutorLost(ExecutorId executor) {
  for (const uint64_t key : Those([&](const Call& call) { return call.executor == executor; })) {
    const Call call = Take(key);
    if (call.number != 0) actions_->SendCancel(call.stream, call.number, "its executor was lost");
  }
}

absl::Status CallbackRouter::TooLate() const {
  return Error(
      absl::StatusCode::kDeadlineExceeded,
      "the client's function did not return within {} s (--callback-limit): make it return "
      "sooner, or raise the limit of the controller (0: none)",
      static_cast<double>(limits_.call_ms) / 1000);
}

void CallbackRouter::Tick(int64_t now_ms) {
  while (!due_.empty() && due_.begin()->first <= now_ms) {
    const uint64_t key = due_.begin()->second;
    const Call& call = calls_.at(key);
    Stream& stream = streams_.at(call.stream);
    if (call.number != 0 && call.answers == stream.answers) stream.silent = true;
    End(key, TooLate(), true);
  }
}

}  // namespace fairway
