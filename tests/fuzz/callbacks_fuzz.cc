// SPDX-License-Identifier: Apache-2.0
// Messages of two clients that serve callbacks, in any order and with any contents, on the real
// streams and the real router. The test plays the executors and the transport. Every call of an
// executor gets exactly one answer, with results of the wanted types or with an error. A client is
// sent calls and bytes in order, and no more than was announced. Nothing is left when the clients
// are gone.
#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "async/event_loop.h"
#include "controller/callbacks/callback_stream.h"
#include "controller/callbacks/router.h"
#include "fairway/v1/callbacks.pb.h"
#include "tests/fuzz/fuzz.h"

namespace fairway::fuzz {
namespace {

constexpr size_t kMostRecords = 200;
constexpr size_t kClients = 2;
constexpr size_t kChunkLimit = size_t{1} << 20;
constexpr CallbackLimits kLimits{.call_ms = 1000,
                                 .session_calls = 8,
                                 .session_bytes = int64_t{2} << 20,
                                 .total_bytes = int64_t{3} << 20,
                                 .streams = 2};

enum Kind : uint8_t {
  kMessage = 0,    // CallbackClientMessage of the first client
  kOther = 1,      // the same, of the second client
  kCalled = 2,     // a program calls: byte: which session, executor, where the arguments are
                   // (CalledFlag); byte: arguments; byte: results; of each of these a byte for the
                   // element type, one for the rank, one for each dimension
  kArguments = 3,  // for the oldest call that lacks them: byte: 0 the right ones, else wrong ones
  kHear = 4,       // byte: client; byte: the number of messages that it reads
  kTick = 5,       // short: milliseconds pass
  kGivenUp = 6,    // byte: which of the waiting calls
  kLost = 7,       // byte: executor
  kSession = 8,    // byte: session; byte: 0 it ends, else it opens with that client's channel
  kConnect = 9,    // byte: a client whose stream has ended
  kLeave = 10,     // byte: client; byte: 0 it closes its side, else its connection is lost
  kChunk = 11,     // byte: client; byte: call; short: KiB
};
enum CalledFlag : uint8_t { kSecondSession = 1, kSecondExecutor = 2, kFar = 4, kNoCaller = 8 };

std::string ChannelOf(size_t client) { return std::string(kChannelBytes, 'a' + client); }

// The client itself, which plays the transport of its stream.
class Client final : public CallbackStream {
 public:
  using CallbackStream::CallbackStream;

  void Say(std::string_view bytes) {
    if (reading_ == nullptr) return;  // the stream does not read
    In* const into = std::exchange(reading_, nullptr);
    ReadDone(into->ParseFromArray(bytes.data(), static_cast<int>(bytes.size())));
  }
  void Hear() {
    if (std::exchange(writing_, false)) WriteDone(true);
  }
  void Leave(bool lost) {
    if (lost) {
      Cancelled();
      if (std::exchange(writing_, false)) WriteDone(false);
    }
    if (std::exchange(reading_, nullptr) != nullptr) ReadDone(false);
  }
  // As gRPC does once the stream is finished: operations under way end, then the stream is done.
  void DoneIfFinished() {
    if (!finished_ || done_) return;
    done_ = true;
    if (std::exchange(reading_, nullptr) != nullptr) ReadDone(false);
    TransportDone();
  }
  bool done() const { return done_; }
  // Reads all messages, so that nothing counts as unread.
  void HearAll() {
    while (writing_) Hear();
    FUZZ_CHECK(finished_ || unsent() == 0);
  }

 private:
  void StartReading(In* into) override {
    FUZZ_CHECK(!finished_ && reading_ == nullptr);
    reading_ = into;
  }
  void StartWriting(const Out* message, bool /*more*/) override {
    FUZZ_CHECK(!finished_ && !writing_);
    writing_ = true;
    // Invalid UTF-8 in a text field would make the client drop the message.
    FUZZ_CHECK(Out().ParseFromString(message->SerializeAsString()));
    FUZZ_CHECK(message->has_opened() != std::exchange(opened_, true));
    if (message->has_call()) OnCall(message->call());
    if (message->has_chunk()) OnChunk(message->chunk());
    if (message->has_cancel()) {
      FUZZ_CHECK(message->cancel().call() >= 1 && message->cancel().call() <= calls_);
      owed_.erase(message->cancel().call());
    }
  }
  void FinishStream(const absl::Status&) override {
    FUZZ_CHECK(!finished_ && !writing_);
    finished_ = true;
  }

  void OnCall(const v1::CallbackCall& call) {
    FUZZ_CHECK(call.call() == ++calls_);
    size_t& owed = owed_[call.call()];
    for (const v1::CallbackArray& array : call.arguments()) {
      FUZZ_CHECK(array.size() >= 0);
      const auto size = static_cast<size_t>(array.size());
      FUZZ_CHECK(array.data().empty() || array.data().size() == size);
      owed += size - array.data().size();
    }
    for (const v1::CallbackArray& array : call.results()) FUZZ_CHECK(array.data().empty());
  }
  void OnChunk(const v1::CallbackChunk& chunk) {
    FUZZ_CHECK(!chunk.data().empty() && chunk.data().size() <= kChunkLimit);
    const auto of = owed_.find(chunk.call());
    FUZZ_CHECK(of != owed_.end() && of->second >= chunk.data().size());
    of->second -= chunk.data().size();
  }

  In* reading_ = nullptr;
  bool writing_ = false, opened_ = false, finished_ = false, done_ = false;
  uint64_t calls_ = 0;
  std::map<uint64_t, size_t> owed_;  // by call: argument bytes that did not come with it
};

class Conversation final : public CallbackActions {
 public:
  Conversation() {
    for (size_t client = 0; client < kClients; ++client) {
      router_.SessionOpened(SessionId(1 + client), ChannelOf(client));
      Connect(client);
    }
    Poll();
  }

  void On(const Record& record) {
    Reader in(record.payload);
    switch (record.kind) {
      case kMessage:
      case kOther:
        clients_[record.kind == kMessage ? 0 : 1]->Say(record.payload);
        break;
      case kCalled:
        Called(in);
        break;
      case kArguments:
        Arguments(in.Byte());
        break;
      case kHear: {
        Client& client = Of(in);
        for (int left = in.Byte(); left > 0; --left) client.Hear();
        break;
      }
      case kTick:
        router_.Tick(now_ += in.Short());
        break;
      case kGivenUp:
        GiveUp(in.Byte());
        break;
      case kLost: {
        const ExecutorId executor(1 + in.Byte() % 2);
        std::erase_if(open_, [&](const auto& call) { return call.first.first == executor; });
        router_.ExecutorLost(executor);
        break;
      }
      case kSession: {
        const SessionId session(1 + in.Byte() % 2);
        const uint8_t channel = in.Byte();
        if (channel == 0) {
          router_.SessionClosed(session);
        } else {
          router_.SessionOpened(session, channel > kClients ? "short" : ChannelOf(channel - 1));
        }
        break;
      }
      case kConnect: {
        const size_t client = in.Byte() % kClients;
        if (clients_[client]->done()) Connect(client);
        break;
      }
      case kLeave: {
        Client& client = Of(in);
        client.Leave(in.Byte() != 0);
        break;
      }
      case kChunk: {
        Client& client = Of(in);
        v1::CallbackClientMessage message;
        message.mutable_chunk()->set_call(in.Byte());
        message.mutable_chunk()->set_data(std::string(size_t{1024} * in.Short() % (3 << 20), 'c'));
        client.Say(message.SerializeAsString());
        break;
      }
      default:
        break;
    }
    Poll();
    FUZZ_CHECK(router_.num_calls() == open_.size());
    FUZZ_CHECK(router_.num_bytes() >= 0 && router_.num_bytes() <= kLimits.total_bytes);
    size_t returning = 0;
    for (const auto& client : clients_) returning += client->num_returning();
    FUZZ_CHECK(returning <= router_.num_calls());
  }

  void End() {
    for (const auto& client : clients_) {
      client->HearAll();
      Poll();
      client->Leave(true);
      Poll();
    }
    FUZZ_CHECK(open_.empty());
    FUZZ_CHECK(router_.num_calls() == 0 && router_.num_bytes() == 0);
    FUZZ_CHECK(streams_.empty());
    for (auto& client : clients_) {
      FUZZ_CHECK(client->done());
      const std::weak_ptr<Client> gone = std::exchange(client, nullptr);
      FUZZ_CHECK(gone.expired());
    }
  }

 private:
  // CallbackActions
  void Answer(ExecutorId executor, CallbackAnswer answer) override {
    const auto asked = open_.extract({executor, answer.call});
    FUZZ_CHECK(!asked.empty());
    if (!answer.status.ok()) {
      FUZZ_CHECK(answer.results.empty());
      FUZZ_CHECK(v1::CallbackCall().ParseFromString(TextMessage(answer.status)));
      return;
    }
    const std::vector<CallbackArray>& wanted = asked.mapped();
    FUZZ_CHECK(answer.results.size() == wanted.size());
    for (size_t i = 0; i < wanted.size(); ++i) {
      FUZZ_CHECK(answer.results[i] != nullptr);
      FUZZ_CHECK(static_cast<int64_t>(answer.results[i]->size()) ==
                 ByteSize(wanted[i].dtype, wanted[i].shape).value());
    }
  }
  void FetchArguments(ExecutorId executor, const CallbackCall& call) override {
    fetches_.emplace_back(executor, call);
  }
  absl::Status SendCall(uint64_t stream, uint64_t number, const CallbackCall& call,
                        const CallbackCaller& caller) override {
    const auto to = streams_.find(stream);
    if (to == streams_.end()) return absl::UnavailableError("gone");
    return to->second->Call(number, call, caller);
  }
  void SendCancel(uint64_t stream, uint64_t number, const std::string& reason) override {
    if (const auto to = streams_.find(stream); to != streams_.end())
      to->second->Cancel(number, reason);
  }
  void EndStream(uint64_t stream, const absl::Status& status) override {
    if (const auto to = streams_.find(stream); to != streams_.end()) to->second->Fail(status);
  }

  // The text of an error goes into messages to others.
  static std::string TextMessage(const absl::Status& status) {
    v1::CallbackCall message;
    message.set_program(Text(status));
    return message.SerializeAsString();
  }

  Client& Of(Reader& in) { return *clients_[in.Byte() % kClients]; }

  void Connect(size_t client) {
    const uint64_t id = next_stream_++;
    auto stream = std::make_shared<Client>(
        id, &router_,
        Client::Context{&loop_, nullptr, 0, [this, id] { streams_.erase(id); },
                        "CallbackClientMessage"});
    streams_[id] = stream.get();
    clients_[client] = stream;
    stream->Start();
  }

  void Poll() {
    for (bool again = true; std::exchange(again, false);) {
      loop_.io_context().restart();
      loop_.io_context().poll();
      for (const auto& client : clients_) {
        if (client == nullptr || client->done()) continue;
        client->DoneIfFinished();
        again |= client->done();
      }
    }
  }

  static CallbackArray ArrayOf(Reader& in, bool with_bytes) {
    static constexpr DType kTypes[] = {DType::kF32, DType::kU8,   DType::kC128,
                                       DType::kS4,  DType::kPred, DType::kToken};
    CallbackArray array;
    array.dtype = kTypes[in.Byte() % std::size(kTypes)];
    for (int rank = in.Byte() % 3; rank > 0; --rank) array.shape.dims.push_back(in.Byte());
    if (with_bytes)
      array.bytes = Blob::Make(static_cast<size_t>(ByteSize(array.dtype, array.shape).value_or(0)));
    return array;
  }

  void Called(Reader in) {
    const uint8_t flags = in.Byte();
    const int arguments = in.Byte() % 4, results = in.Byte() % 4;
    const ExecutorId executor((flags & kSecondExecutor) != 0 ? 2 : 1);
    CallbackCall call{next_call_++, LaunchId(9), 7, 0, {}, {}};
    for (int i = 0; i < arguments; ++i)
      call.arguments.push_back(ArrayOf(in, (flags & kFar) == 0 || i == 0));
    for (int i = 0; i < results; ++i) call.results.push_back(ArrayOf(in, false));
    open_[{executor, call.call}] = call.results;
    absl::StatusOr<CallbackCaller> caller =
        CallbackCaller{SessionId((flags & kSecondSession) != 0 ? 2 : 1), "f\xff", 3};
    if ((flags & kNoCaller) != 0) caller = absl::NotFoundError("no launch");
    router_.Called(now_, executor, std::move(call), std::move(caller));
  }

  void Arguments(uint8_t how) {
    if (fetches_.empty()) return;
    const auto [executor, call] = std::move(fetches_.front());
    fetches_.erase(fetches_.begin());
    if (how == 1) return router_.ArgumentsCame(executor, call.call, absl::DataLossError("lost"));
    std::vector<std::shared_ptr<const Blob>> bytes;
    for (const CallbackArray& array : call.arguments) {
      const int64_t size = ByteSize(array.dtype, array.shape).value_or(0) + (how == 2 ? 1 : 0);
      bytes.push_back(how == 3 ? nullptr : Blob::Make(static_cast<size_t>(size)));
    }
    if (how == 4) bytes.pop_back();
    router_.ArgumentsCame(executor, call.call, std::move(bytes));
  }

  void GiveUp(uint8_t which) {
    if (open_.empty()) return;
    const auto call = std::next(open_.begin(), which % open_.size());
    const auto [executor, number] = call->first;
    open_.erase(call);
    router_.GivenUp(executor, number);
  }

  EventLoop loop_;
  CallbackRouter router_{kLimits, this};
  std::array<std::shared_ptr<Client>, kClients> clients_;
  std::map<uint64_t, Client*> streams_;  // until the transport is done with them
  uint64_t next_stream_ = 1, next_call_ = 1;
  int64_t now_ = 1;
  // Calls of executors that wait for an answer, with their wanted results.
  std::map<std::pair<ExecutorId, uint64_t>, std::vector<CallbackArray>> open_;
  std::vector<std::pair<ExecutorId, CallbackCall>> fetches_;
};

}  // namespace

const google::protobuf::Message* Prototype(uint8_t kind) {
  return kind <= kOther ? &v1::CallbackClientMessage::default_instance() : nullptr;
}

}  // namespace fairway::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace fairway::fuzz;
  const auto records = Cut({reinterpret_cast<const char*>(data), size});
  if (records.size() > kMostRecords) return 0;
  Conversation conversation;
  for (const Record& record : records) conversation.On(record);
  conversation.End();
  return 0;
}
