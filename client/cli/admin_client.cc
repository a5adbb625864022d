// SPDX-License-Identifier: Apache-2.0
#include "client/cli/admin_client.h"

#include <chrono>

#include <grpc/support/log.h>
#include <grpcpp/grpcpp.h>

#include "base/host.h"
#include "client/cpp/credentials.h"
#include "fairway/v1/admin.grpc.pb.h"
#include "identity/tls_probe.h"

namespace fairway {
namespace {

constexpr auto kAnswerTimeout = std::chrono::seconds(5);

auto AnswerDeadline() { return std::chrono::system_clock::now() + kAnswerTimeout; }

// Whether gRPC's `error` says that the peer broke the connection off, or spoke another protocol,
// before any call.
bool NoGreeting(const std::string& error) {
  if (!error.starts_with("failed to connect")) return false;
  for (const char* end : {"Socket closed", "Connection reset", "http1.x server"}) {
    if (error.find(end) != std::string::npos) return true;
  }
  return false;
}

}  // namespace

struct AdminClient::State {
  absl::Status wrong;  // the address, or the file of --tls-ca
  std::string controller;
  std::string authorities;  // empty: no TLS
  std::unique_ptr<v1::Admin::Stub> stub;

  absl::Status ToStatus(const grpc::Status& status) const {
    if (status.ok()) return absl::OkStatus();
    const auto code = static_cast<absl::StatusCode>(status.error_code());
    if (code == absl::StatusCode::kUnavailable) {
      FAIRWAY_RETURN_IF_ERROR(Annotate(ProbeController(controller, authorities, kAnswerTimeout),
                                       fmt::format("connecting to {}", controller)));
    }
    if (code == absl::StatusCode::kUnavailable && NoGreeting(status.error_message())) {
      return Error(code,
                   "the server at {} does not speak gRPC, or was just ending: give the "
                   "controller's clients' port (its --port, 29000 by default; see --controller)",
                   controller);
    }
    if (code == absl::StatusCode::kUnavailable) {
      return Error(
          code,
          "no controller answers at {} (start a cluster by `fairway up`, or name a running "
          "one by --controller or FAIRWAY_CONTROLLER)",
          controller);
    }
    if (code == absl::StatusCode::kDeadlineExceeded) {
      return Error(code,
                   "no answer from {} within {} s: it cannot be reached from here, or is stopped, "
                   "too busy, or no controller (see --controller)",
                   controller, kAnswerTimeout.count());
    }
    if (code == absl::StatusCode::kUnimplemented) {
      return Error(code, "the server at {} is not a Fairway controller", controller);
    }
    return Error(code, "{}", status.error_message());
  }
};

namespace {

template <typename Request, typename Response, typename State>
absl::StatusOr<Response> Ask(const State& state,
                             grpc::Status (v1::Admin::Stub::*call)(grpc::ClientContext*,
                                                                   const Request&, Response*),
                             const Request& request) {
  FAIRWAY_RETURN_IF_ERROR(state.wrong);
  grpc::ClientContext context;
  context.set_deadline(AnswerDeadline());
  Response response;
  FAIRWAY_RETURN_IF_ERROR(state.ToStatus((state.stub.get()->*call)(&context, request, &response)));
  return response;
}

}  // namespace

void SilenceGrpc() {
  gpr_set_log_function([](gpr_log_func_args*) {});
}

AdminClient::AdminClient(const Reach& reach) : state_(std::make_unique<State>()) {
  auto address = ControllerAddress(reach.controller);
  state_->wrong = address.status();
  if (!address.ok()) return;
  state_->controller = *std::move(address);
  const auto texts = client::ReadClientTexts(reach.tls_ca, reach.token_file, /*flags=*/true);
  state_->wrong = texts.status();
  if (!texts.ok()) return;
  state_->authorities = texts->authorities;
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  state_->stub = v1::Admin::NewStub(grpc::CreateCustomChannel(
      state_->controller, client::ControllerCredentials(state_->authorities, texts->token),
      arguments));
}
AdminClient::~AdminClient() = default;

absl::StatusOr<v1::GetStatusResponse> AdminClient::GetStatus() {
  FAIRWAY_RETURN_IF_ERROR(state_->wrong);
  grpc::ClientContext context;
  context.set_deadline(AnswerDeadline());
  v1::GetStatusResponse response;
  FAIRWAY_RETURN_IF_ERROR(state_->ToStatus(state_->stub->GetStatus(&context, {}, &response)));
  return response;
}

absl::StatusOr<v1::ListSessionsResponse> AdminClient::ListSessions(const v1::ListRequest& request) {
  return Ask(*state_, &v1::Admin::Stub::ListSessions, request);
}

absl::StatusOr<v1::ListArraysResponse> AdminClient::ListArrays(const v1::ListRequest& request) {
  return Ask(*state_, &v1::Admin::Stub::ListArrays, request);
}

absl::StatusOr<v1::ListProgramsResponse> AdminClient::ListPrograms(const v1::ListRequest& request) {
  return Ask(*state_, &v1::Admin::Stub::ListPrograms, request);
}

absl::StatusOr<v1::ListNodesResponse> AdminClient::ListNodes(const v1::ListRequest& request) {
  return Ask(*state_, &v1::Admin::Stub::ListNodes, request);
}

absl::StatusOr<v1::ListEventsResponse> AdminClient::ListEvents(const v1::ListRequest& request) {
  return Ask(*state_, &v1::Admin::Stub::ListEvents, request);
}

absl::Status AdminClient::GetLogs(const v1::GetLogsRequest& request,
                                  const std::function<void(const v1::LogLine&)>& on_line) {
  FAIRWAY_RETURN_IF_ERROR(state_->wrong);
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  // Only the first line has a deadline: a user may read the others in a pager, at leisure.
  auto deadline = AnswerDeadline();
  bool late = false;
  const auto next = [&] {
    void* tag = nullptr;
    bool ok = false;
    if (queue.AsyncNext(&tag, &ok, deadline) == grpc::CompletionQueue::TIMEOUT) {
      late = true;
      context.TryCancel();
      queue.Next(&tag, &ok);
    }
    return ok;
  };
  const auto reader = state_->stub->AsyncGetLogs(&context, request, &queue, nullptr);
  v1::LogLine line;
  for (bool more = next(); more;) {
    reader->Read(&line, nullptr);
    more = next();
    if (!more) break;
    deadline = std::chrono::system_clock::time_point::max();
    on_line(line);
  }
  grpc::Status status;
  reader->Finish(&status, nullptr);
  next();
  return state_->ToStatus(late ? grpc::Status(grpc::StatusCode::DEADLINE_EXCEEDED, "") : status);
}

absl::StatusOr<v1::RestartExecutorResponse> AdminClient::RestartExecutor(
    const std::string& worker) {
  v1::RestartExecutorRequest request;
  request.set_worker(worker);
  return Ask(*state_, &v1::Admin::Stub::RestartExecutor, request);
}

absl::StatusOr<v1::CordonIslandResponse> AdminClient::CordonIsland(const std::string& island) {
  v1::CordonIslandRequest request;
  request.set_island(island);
  return Ask(*state_, &v1::Admin::Stub::CordonIsland, request);
}

absl::StatusOr<v1::UncordonIslandResponse> AdminClient::UncordonIsland(const std::string& island) {
  v1::UncordonIslandRequest request;
  request.set_island(island);
  return Ask(*state_, &v1::Admin::Stub::UncordonIsland, request);
}

absl::StatusOr<v1::DrainIslandResponse> AdminClient::DrainIsland(const std::string& island,
                                                                 bool again) {
  v1::DrainIslandRequest request;
  request.set_island(island);
  request.set_again(again);
  return Ask(*state_, &v1::Admin::Stub::DrainIsland, request);
}

absl::StatusOr<v1::ShutdownResponse> AdminClient::Shutdown() {
  FAIRWAY_RETURN_IF_ERROR(state_->wrong);
  grpc::ClientContext context;
  context.set_deadline(AnswerDeadline());
  v1::ShutdownResponse response;
  FAIRWAY_RETURN_IF_ERROR(state_->ToStatus(state_->stub->Shutdown(&context, {}, &response)));
  return response;
}

absl::StatusOr<v1::CreateTokenResponse> AdminClient::CreateToken(
    const v1::CreateTokenRequest& request) {
  FAIRWAY_RETURN_IF_ERROR(state_->wrong);
  grpc::ClientContext context;
  context.set_deadline(AnswerDeadline());
  v1::CreateTokenResponse response;
  FAIRWAY_RETURN_IF_ERROR(
      state_->ToStatus(state_->stub->CreateToken(&context, request, &response)));
  return response;
}

absl::StatusOr<v1::ListTokensResponse> AdminClient::ListTokens() {
  FAIRWAY_RETURN_IF_ERROR(state_->wrong);
  v1::ListTokensResponse all;
  v1::ListTokensRequest request;
  for (bool more = true; more;) {
    grpc::ClientContext context;
    context.set_deadline(AnswerDeadline());
    v1::ListTokensResponse part;
    FAIRWAY_RETURN_IF_ERROR(state_->ToStatus(state_->stub->ListTokens(&context, request, &part)));
    more = part.more() && part.tokens_size() > 0;
    if (more) request.set_after(part.tokens(part.tokens_size() - 1).id());
    all.MergeFrom(part);
  }
  all.clear_more();
  return all;
}

absl::Status AdminClient::RevokeToken(int64_t id) {
  FAIRWAY_RETURN_IF_ERROR(state_->wrong);
  grpc::ClientContext context;
  context.set_deadline(AnswerDeadline());
  v1::RevokeTokenRequest request;
  request.set_id(id);
  v1::RevokeTokenResponse response;
  return state_->ToStatus(state_->stub->RevokeToken(&context, request, &response));
}

absl::StatusOr<v1::ListCertificatesResponse> AdminClient::ListCertificates() {
  FAIRWAY_RETURN_IF_ERROR(state_->wrong);
  v1::ListCertificatesResponse all;
  v1::ListCertificatesRequest request;
  for (bool more = true; more;) {
    grpc::ClientContext context;
    context.set_deadline(AnswerDeadline());
    v1::ListCertificatesResponse part;
    FAIRWAY_RETURN_IF_ERROR(
        state_->ToStatus(state_->stub->ListCertificates(&context, request, &part)));
    more = part.more() && part.certificates_size() > 0;
    if (more) request.set_after(part.certificates(part.certificates_size() - 1).id());
    all.MergeFrom(part);
  }
  all.clear_more();
  return all;
}

absl::StatusOr<v1::RevokeCertificatesResponse> AdminClient::RevokeCertificates(
    const std::string& worker) {
  FAIRWAY_RETURN_IF_ERROR(state_->wrong);
  grpc::ClientContext context;
  context.set_deadline(AnswerDeadline());
  v1::RevokeCertificatesRequest request;
  request.set_worker(worker);
  v1::RevokeCertificatesResponse response;
  FAIRWAY_RETURN_IF_ERROR(
      state_->ToStatus(state_->stub->RevokeCertificates(&context, request, &response)));
  return response;
}

absl::StatusOr<v1::JoinResponse> AdminClient::Join(const v1::JoinRequest& request) {
  FAIRWAY_RETURN_IF_ERROR(state_->wrong);
  grpc::ClientContext context;
  context.set_deadline(AnswerDeadline());
  v1::JoinResponse response;
  FAIRWAY_RETURN_IF_ERROR(state_->ToStatus(state_->stub->Join(&context, request, &response)));
  return response;
}

}  // namespace fairway
