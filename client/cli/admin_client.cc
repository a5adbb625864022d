// SPDX-License-Identifier: Apache-2.0
#include "client/cli/admin_client.h"

#include <chrono>

#include <grpcpp/grpcpp.h>

#include "fairway/v1/admin.grpc.pb.h"

namespace fairway {

struct AdminClient::State {
  std::string controller;
  std::unique_ptr<v1::Admin::Stub> stub;

  absl::Status ToStatus(const grpc::Status& status) const {
    if (status.ok()) return absl::OkStatus();
    const auto code = static_cast<absl::StatusCode>(status.error_code());
    if (code == absl::StatusCode::kUnavailable || code == absl::StatusCode::kDeadlineExceeded) {
      return Error(absl::StatusCode::kUnavailable,
                   "no controller answers at {} (is it running? see --controller)", controller);
    }
    if (code == absl::StatusCode::kUnimplemented) {
      return Error(code, "what answers at {} is not a Fairway controller", controller);
    }
    return Error(code, "{}", status.error_message());
  }
};

namespace {

void SetDeadline(grpc::ClientContext& context) {
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(5));
}

}  // namespace

AdminClient::AdminClient(const std::string& controller) : state_(std::make_unique<State>()) {
  state_->controller = controller;
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  state_->stub = v1::Admin::NewStub(
      grpc::CreateCustomChannel(controller, grpc::InsecureChannelCredentials(), arguments));
}
AdminClient::~AdminClient() = default;

absl::StatusOr<v1::GetStatusResponse> AdminClient::GetStatus() {
  grpc::ClientContext context;
  SetDeadline(context);
  v1::GetStatusResponse response;
  FAIRWAY_RETURN_IF_ERROR(state_->ToStatus(state_->stub->GetStatus(&context, {}, &response)));
  return response;
}

absl::Status AdminClient::GetLogs(const v1::GetLogsRequest& request,
                                  const std::function<void(const v1::LogLine&)>& on_line) {
  grpc::ClientContext context;
  SetDeadline(context);
  const auto reader = state_->stub->GetLogs(&context, request);
  for (v1::LogLine line; reader->Read(&line);) on_line(line);
  return state_->ToStatus(reader->Finish());
}

absl::StatusOr<v1::ShutdownResponse> AdminClient::Shutdown() {
  grpc::ClientContext context;
  SetDeadline(context);
  v1::ShutdownResponse response;
  FAIRWAY_RETURN_IF_ERROR(state_->ToStatus(state_->stub->Shutdown(&context, {}, &response)));
  return response;
}

}  // namespace fairway
