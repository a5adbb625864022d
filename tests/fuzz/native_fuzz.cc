// SPDX-License-Identifier: Apache-2.0
// Whole conversations of the native front door over a real cluster core whose executors the test
// plays: any messages, their uploads, and answers of the compiler, in any order. Every request gets
// at most one answer; a fetch gets one per piece, and nothing after an error. The core's rules hold
// throughout; nothing is left when the clients are gone.
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "controller/cluster/inspection.h"
#include "controller/ifrt/test_cluster.h"
#include "controller/native/door.h"
#include "controller/native/uploads.h"
#include "fairway/v1/client.pb.h"
#include "tests/fuzz/fuzz.h"

namespace fairway::fuzz {
namespace {

constexpr int64_t kDeviceMemory = 1 << 20;
constexpr size_t kMostRecords = 200;
constexpr int kMostRequests = 200;  // in one message

enum Kind : uint8_t {
  kMessage = 0,        // ClientMessage
  kRun = 1,            // the executors carry out their commands
  kCompileAnswer = 2,  // ExecutableMetadata, to the oldest compilation
  kTestCode = 3,       // bytes: arguments, results, devices, donated argument: to that compilation
  kFail = 4,           // the next node that ends fails
  kCompileFails = 5,
  kOther = 6,  // ClientMessage, of another session
};

class Client : public NativeShell {
 public:
  Client(TestCluster* cluster, NativeDoor* door) : cluster_(cluster), door_(door) {
    session_ = door->Open("t", this).value();
  }
  ~Client() { Close(); }

  // Handles a message as NativeStream does.
  void Say(v1::ClientMessage message) {
    if (session_ == nullptr || message.requests_size() > kMostRequests) return;
    auto uploaded = uploads_.Take(message);
    if (!uploaded.ok()) return Close();
    for (Uploaded& one : *uploaded) session_->Uploaded(one.upload, std::move(one.bytes));
    for (v1::Request& request : *message.mutable_requests()) {
      if (request.id() != 0) {
        request.set_id(next_id_++);
        asked_[request.id()] = request.has_fetch();
      }
      session_->Handle(request);
    }
  }
  void Close() {
    if (session_ != nullptr) door_->Close(std::exchange(session_, nullptr)->session());
  }

 private:
  void Send(v1::Answer answer) override {
    // Invalid UTF-8 in a text field would make the client drop the answer.
    FUZZ_CHECK(v1::Answer().ParseFromString(answer.SerializeAsString()));
    FUZZ_CHECK(!answer.has_error() || answer.result_case() == v1::Answer::RESULT_NOT_SET);
    FUZZ_CHECK(!answer.has_error() || answer.error().code() != 0);
    FUZZ_CHECK(asked_.erase(answer.id()) == 1);
  }
  void SendSerialized(std::string message) override {
    v1::ServerMessage parsed;
    FUZZ_CHECK(parsed.ParseFromString(message));
    for (const v1::Answer& answer : parsed.answers()) Send(answer);
  }
  void SendBytes(uint64_t id, int32_t, BytesRef bytes) override {
    FUZZ_CHECK(bytes != nullptr);
    const auto asked = asked_.find(id);
    FUZZ_CHECK(asked != asked_.end() && asked->second);
  }
  void RunOffLoop(std::function<void()> work, std::function<void()> then) override {
    cluster_->RunOffLoop(std::move(work), std::move(then));
  }
  void Discard(std::shared_ptr<void> garbage) override {
    cluster_->RunOffLoop([garbage = std::move(garbage)] {}, [] {});
  }

  TestCluster* const cluster_;
  NativeDoor* const door_;
  NativeSession* session_ = nullptr;
  Uploads uploads_{Spool{std::make_shared<MemoryBudget>(int64_t{16} << 20), "/nowhere"}};
  uint64_t next_id_ = 1;
  std::map<uint64_t, bool> asked_;  // id -> whether the request is a fetch
};

class Conversation {
 public:
  Conversation() : cluster_(kDeviceMemory), door_(&cluster_.cluster(), &cluster_.compiler()) {
    first_ = std::make_unique<Client>(&cluster_, &door_);
    second_ = std::make_unique<Client>(&cluster_, &door_);
  }

  void On(const Record& record) {
    Reader in(record.payload);
    switch (record.kind) {
      case kMessage:
      case kOther: {
        v1::ClientMessage message;
        if (!message.ParseFromString(record.payload)) break;
        (record.kind == kMessage ? first_ : second_)->Say(std::move(message));
        break;
      }
      case kFail:
        cluster_.fail_next = absl::DataLossError("it failed");
        break;
      case kCompileAnswer:
      case kTestCode:
      case kCompileFails:
        AnswerCompile(record.kind, in);
        break;
      default:
        cluster_.RunAll();
    }
    FUZZ_CHECK(cluster_.cluster().inspection().CheckInvariants().ok());
  }

  void End() {
    cluster_.RunAll();
    first_->Close();
    second_->Close();
    cluster_.RunAll();
    FUZZ_CHECK(cluster_.cluster().inspection().CheckInvariants().ok());
    const auto counts = cluster_.cluster().inspection().counts();
    FUZZ_CHECK(counts.arrays == 0 && counts.groups == 0 && counts.nodes == 0);
  }

 private:
  void AnswerCompile(uint8_t kind, Reader& in) {
    if (cluster_.open_compilations() == 0) return;
    if (kind == kCompileFails)
      return cluster_.AnswerCompile(absl::InvalidArgumentError("no such program"));
    if (kind == kTestCode) {
      const int arguments = in.Byte() % 8, results = in.Byte() % 8;
      const int devices = 1 << in.Byte() % 3;
      const int donated = in.Byte() % 8;
      std::vector<int> indices;
      if (donated < arguments) indices.push_back(donated);
      return cluster_.AnswerCompile(TestCode(arguments, results, devices, indices));
    }
    CompiledCode code;
    code.code = "code";
    code.checksum = "sum";
    if (code.metadata.ParseFromString(std::string(in.Rest())))
      cluster_.AnswerCompile(std::move(code));
  }

  TestCluster cluster_;
  NativeDoor door_;
  std::unique_ptr<Client> first_, second_;
};

}  // namespace

const google::protobuf::Message* Prototype(uint8_t kind) {
  switch (kind) {
    case kMessage:
    case kOther:
      return &v1::ClientMessage::default_instance();
    case kCompileAnswer:
      return &v1::ExecutableMetadata::default_instance();
    default:
      return nullptr;
  }
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
