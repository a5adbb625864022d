// SPDX-License-Identifier: Apache-2.0
#include "client/cli/gateway_health.h"

#include <chrono>
#include <string_view>
#include <thread>
#include <utility>

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include "async/event_loop.h"
#include "base/host.h"
#include "transport/http_server.h"

namespace fairway {
namespace {

constexpr char kCheck[] = "/grpc.health.v1.Health/Check";
constexpr std::string_view kServing = "\x08\x01";  // HealthCheckResponse.status
constexpr std::chrono::seconds kEvery{2};
constexpr std::chrono::seconds kPatience{3};

class Health {
 public:
  explicit Health(std::shared_ptr<grpc::Channel> controller) : controller_(std::move(controller)) {}

  // Where it serves. Then the object lives until the process ends, perhaps with a question under
  // way.
  absl::StatusOr<std::string> Serve(const std::string& at, std::shared_ptr<TlsIdentity> tls) {
    FAIRWAY_ASSIGN_OR_RETURN(const auto place, SplitHostPort(at));
    const std::string scheme = tls == nullptr ? "http://" : "https://";
    auto http = HttpServer::Listen(
        loop_, place.first, place.second,
        [this](const HttpRequest& request) { return Answer(request); }, std::move(tls));
    if (!http.ok()) return http.status();
    http_ = *std::move(http);
    loop_.Post("ask the controller", [this] { Ask(); });
    std::thread([this] { loop_.Run(); }).detach();
    return scheme + HostPort(place.first, http_->port());
  }

 private:
  struct Question {
    grpc::ClientContext context;
    grpc::ByteBuffer request, answer;
  };

  HttpAnswer Answer(const HttpRequest& request) const {
    if (request.path == "/healthz") return {.body = "ok\n"};
    if (request.path != "/readyz")
      return {.status = 404, .body = "not found: there are /healthz and /readyz\n"};
    if (word_ == "ready") return {.body = "ready\n"};
    return {.status = 503, .body = std::string(word_) + "\n"};
  }

  void Ask() {
    auto* const question = new Question;
    question->context.set_deadline(std::chrono::system_clock::now() + kPatience);
    const grpc::Slice empty;
    question->request = grpc::ByteBuffer(&empty, 1);
    controller_.UnaryCall(&question->context, kCheck, {}, &question->request, &question->answer,
                          [this, question](const grpc::Status& status) {
                            grpc::Slice answer;
                            const bool ready =
                                status.ok() && question->answer.DumpToSingleSlice(&answer).ok() &&
                                kServing ==
                                    std::string_view(reinterpret_cast<const char*>(answer.begin()),
                                                     answer.size());
                            delete question;
                            loop_.Post("controller's health", [this, ready] { Heard(ready); });
                          });
  }
  void Heard(bool ready) {
    word_ = ready ? "ready" : "waiting";
    loop_.PostAfter(kEvery, "ask the controller", [this] { Ask(); });
  }

  EventLoop loop_;
  grpc::GenericStub controller_;
  std::unique_ptr<HttpServer> http_;
  std::string_view word_ = "starting";  // of the loop
};

}  // namespace

absl::StatusOr<std::string> ServeGatewayHealth(const std::string& at,
                                               std::shared_ptr<grpc::Channel> controller,
                                               std::shared_ptr<TlsIdentity> tls) {
  auto health = std::make_unique<Health>(std::move(controller));
  auto url = health->Serve(at, std::move(tls));
  if (!url.ok()) return Annotate(url.status(), "--http-bind=" + at);
  health.release();
  return url;
}

}  // namespace fairway
