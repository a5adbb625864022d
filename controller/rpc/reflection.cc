// SPDX-License-Identifier: Apache-2.0
#include "controller/rpc/reflection.h"

#include <memory>
#include <set>
#include <string>
#include <utility>

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>

#include "grpc/reflection.pb.h"

namespace fairway {
namespace {

namespace reflection = grpc::reflection::v1alpha;
using google::protobuf::DescriptorPool;
using google::protobuf::FileDescriptor;

constexpr char kMethod[] = "grpc.reflection.v1alpha.ServerReflection.ServerReflectionInfo";
constexpr int kNotFound = 5;  // grpc::StatusCode

using Services = std::shared_ptr<const std::set<std::string>>;

// Adds the file and those that it imports, each once.
void AddFile(const FileDescriptor* file, std::set<const FileDescriptor*>* added,
             reflection::FileDescriptorResponse* to) {
  if (!added->insert(file).second) return;
  google::protobuf::FileDescriptorProto text;
  file->CopyTo(&text);
  to->add_file_descriptor_proto(text.SerializeAsString());
  for (int i = 0; i < file->dependency_count(); ++i) AddFile(file->dependency(i), added, to);
}

void Answer(const std::set<std::string>& services, reflection::ServerReflectionResponse* answer) {
  using Request = reflection::ServerReflectionRequest;
  const Request& request = answer->original_request();
  if (request.message_request_case() == Request::kListServices) {
    for (const std::string& name : services)
      answer->mutable_list_services_response()->add_service()->set_name(name);
    return;
  }
  const auto& pool = *DescriptorPool::generated_pool();
  const bool by_name = request.message_request_case() == Request::kFileByFilename;
  const FileDescriptor* const file =
      by_name ? pool.FindFileByName(request.file_by_filename())
              : pool.FindFileContainingSymbol(request.file_containing_symbol());
  if (file == nullptr) {
    answer->mutable_error_response()->set_error_code(kNotFound);
    answer->mutable_error_response()->set_error_message(
        "the server has no such file or symbol; it knows list_services, file_by_filename and "
        "file_containing_symbol");
    return;
  }
  std::set<const FileDescriptor*> added;
  AddFile(file, &added, answer->mutable_file_descriptor_response());
}

// Answers one request after the other.
class Reflection final : public RpcCall {
 public:
  explicit Reflection(Services services) : services_(std::move(services)) { StartRead(&request_); }
  void OnReadDone(bool ok) override {
    if (!ok) return Finish(absl::OkStatus());
    answer_.Clear();
    answer_.set_valid_host(request_.host());
    answer_.mutable_original_request()->Swap(&request_);
    Answer(*services_, &answer_);
    StartWrite(answer_);
  }
  void OnWriteDone(bool ok) override {
    if (!ok) return Finish(absl::CancelledError());
    request_.Clear();
    StartRead(&request_);
  }
  void OnDone() override { delete this; }

 private:
  const Services services_;
  reflection::ServerReflectionRequest request_;
  reflection::ServerReflectionResponse answer_;
};

}  // namespace

void AddReflection(RpcMethods* methods) {
  std::set<std::string> services;
  (*methods)[kMethod] = {};  // it tells of itself
  for (const auto& [rpc, _] : *methods) {
    std::string service = rpc.substr(0, rpc.rfind('.'));
    if (DescriptorPool::generated_pool()->FindServiceByName(service) != nullptr)
      services.insert(std::move(service));
  }
  (*methods)[kMethod] = [services =
                             std::make_shared<const std::set<std::string>>(std::move(services))](
                            grpc::ServerContextBase*) { return new Reflection(services); };
}

}  // namespace fairway
