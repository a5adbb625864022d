// SPDX-License-Identifier: Apache-2.0
// Whole conversations of the IFRT front door over a real cluster core whose executors the test
// plays: any requests, uploads, and answers of the compiler, in any order. Every request gets at
// most one answer, of its kind or an error. The core's rules hold throughout; nothing is left when
// the clients are gone.
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "controller/cluster/inspection.h"
#include "controller/ifrt/test_cluster.h"
#include "ifrt/messages.pb.h"
#include "tests/fuzz/fuzz.h"

namespace fairway::fuzz {
namespace {

using xla::ifrt::proxy::IfrtRequest;
using xla::ifrt::proxy::IfrtResponse;

constexpr int64_t kDeviceMemory = 1 << 20;
constexpr size_t kMostRecords = 200;

enum Kind : uint8_t {
  kRequest = 0,        // IfrtRequest
  kStore = 1,          // byte: handle; the bytes of a host buffer
  kRun = 2,            // the executors carry out their commands
  kCompileAnswer = 3,  // ExecutableMetadata, to the oldest compilation
  kTestCode = 4,       // bytes: arguments, results, devices, donated argument: to that compilation
  kFail = 5,           // the next node that ends fails
  kLookup = 6,         // byte: handle
  kDelete = 7,         // byte: handle
  kCompileFails = 8,
  kOther = 9,  // IfrtRequest, of another session
};

class Client : public IfrtShell {
 public:
  explicit Client(TestCluster* cluster) : cluster_(cluster) {}

  void Ask(const IfrtRequest& request) {
    IfrtRequest numbered = request;
    numbered.mutable_request_metadata()->set_op_id(++asked_);
    session_->Handle(numbered);
  }
  void set_session(IfrtSession* session) { session_ = session; }
  IfrtSession* session() const { return session_; }

 private:
  void Send(std::unique_ptr<IfrtResponse> response, bool) override {
    const auto& metadata = response->response_metadata();
    FUZZ_CHECK(metadata.op_id() >= 1 && metadata.op_id() <= asked_);
    FUZZ_CHECK(answered_.insert(metadata.op_id()).second);
    // A response beside an error would hide the error from the client.
    const bool error = metadata.status().code() != tensorflow::error::OK;
    FUZZ_CHECK(error == (response->response_case() == IfrtResponse::RESPONSE_NOT_SET));
    // Invalid UTF-8 in a text field would make the client drop the answer.
    FUZZ_CHECK(IfrtResponse().ParseFromString(response->SerializeAsString()));
  }
  void RunOffLoop(std::function<void()> work, std::function<void()> then) override {
    cluster_->RunOffLoop(std::move(work), std::move(then));
  }
  void Discard(std::shared_ptr<void> garbage) override {
    cluster_->RunOffLoop([garbage = std::move(garbage)] {}, [] {});
  }

  TestCluster* const cluster_;
  IfrtSession* session_ = nullptr;
  uint64_t asked_ = 0;
  std::set<uint64_t> answered_;
};

class Conversation {
 public:
  Conversation() : cluster_(kDeviceMemory) {
    first_.set_session(cluster_.door().Open(77, "tenant", &first_).value());
    second_.set_session(cluster_.door().Open(78, "other", &second_).value());
  }

  void On(const Record& record) {
    Reader in(record.payload);
    HostBufferStore& buffers = first_.session()->host_buffers();
    switch (record.kind) {
      case kRequest:
      case kOther: {
        IfrtRequest request;
        if (!request.ParseFromString(record.payload)) break;
        (record.kind == kRequest ? first_ : second_).Ask(request);
        break;
      }
      case kStore: {
        const uint64_t handle = in.Byte();
        buffers.Store(handle, Blob::Copy(in.Rest()));
        break;
      }
      case kLookup:
        buffers.Lookup(in.Byte(), [](const HostBufferStore::Bytes&) {});
        break;
      case kDelete:
        (void)buffers.Delete(in.Byte());
        break;
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
    cluster_.door().Close(77);
    cluster_.door().Close(78);
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
    CompiledCode code;
    code.code = "code";
    code.checksum = "sum";
    if (kind == kTestCode) {
      const int arguments = in.Byte() % 8, results = in.Byte() % 8;
      const int devices = 1 << in.Byte() % 3;
      const int donated = in.Byte() % 8;
      std::vector<int> indices;
      if (donated < arguments) indices.push_back(donated);
      return cluster_.AnswerCompile(TestCode(arguments, results, devices, indices));
    }
    if (code.metadata.ParseFromString(std::string(in.Rest())))
      cluster_.AnswerCompile(std::move(code));
  }

  Client first_{&cluster_}, second_{&cluster_};
  TestCluster cluster_;
};

}  // namespace

const google::protobuf::Message* Prototype(uint8_t kind) {
  switch (kind) {
    case kRequest:
    case kOther:
      return &IfrtRequest::default_instance();
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
