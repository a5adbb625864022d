// SPDX-License-Identifier: Apache-2.0
#include "controller/admin/admin_service.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include <fmt/ranges.h>
#include <grpcpp/grpcpp.h>

#include "base/utf8.h"
#include "controller/access/gated_methods.h"
#include "controller/admin/cordons.h"
#include "controller/admin/listings.h"
#include "controller/cluster/status.h"
#include "fairway/v1/admin.pb.h"
#include "identity/issuer.h"

namespace fairway {
namespace {

constexpr int kTokensOfAnAnswer = 1000;
// The most calls about tokens that wait at one time. A token has as many as it leaves to others.
constexpr size_t kMostOnTokens = 1024;
constexpr size_t kMostJoining = 64;

v1::Token ToProto(const TokenRecord& token) {
  v1::Token out;
  out.set_id(token.id);
  out.set_role(std::string(NameOf(token.role)));
  out.set_tenant(token.tenant);
  out.set_created_s(token.created.time_since_epoch().count());
  out.set_expires_s(token.expires.time_since_epoch().count());
  out.set_revoked_s(token.revoked.time_since_epoch().count());
  out.set_uses(token.uses);
  out.set_worker(token.worker);
  return out;
}

absl::StatusOr<TokenSpec> SpecOf(const v1::CreateTokenRequest& request) {
  TokenSpec spec;
  FAIRWAY_ASSIGN_OR_RETURN(spec.role, TokenRoleOf(request.role()));
  spec.tenant = request.tenant();
  spec.worker = request.worker();
  spec.lifetime = std::chrono::seconds(request.lifetime_s());
  if (spec.role == TokenRole::kWorker) spec.uses = 1;
  if (request.uses() != 0) spec.uses = request.uses();
  FAIRWAY_RETURN_IF_ERROR(CheckSpec(spec));
  return spec;
}

// The verbs of tokens, once the caller may.
absl::Status CreateToken(const AdminHooks& hooks, const v1::CreateTokenRequest& request,
                         v1::CreateTokenResponse* response) {
  FAIRWAY_ASSIGN_OR_RETURN(const TokenSpec spec, SpecOf(request));
  if (spec.role == TokenRole::kWorker) FAIRWAY_RETURN_IF_ERROR(hooks.issuer->MayIssue(spec.worker));
  FAIRWAY_ASSIGN_OR_RETURN(TokenStore::Made made, hooks.gate->Create(spec));
  *response->mutable_token() = ToProto(made.kept.record);
  response->set_secret(std::move(made.secret));
  return absl::OkStatus();
}

std::string ObjectOf(const v1::CreateTokenResponse& made) {
  if (!made.has_token()) return "make a token";
  const v1::Token& token = made.token();
  std::string out = fmt::format("make token {}, role {}", token.id(), token.role());
  if (!token.tenant().empty()) out += " of tenant " + token.tenant();
  if (!token.worker().empty()) out += " of name " + token.worker();
  return out;
}

absl::Status Join(const AdminHooks& hooks, const Caller& caller, const v1::JoinRequest& request,
                  v1::JoinResponse* response) {
  FAIRWAY_ASSIGN_OR_RETURN(IssuedCertificate made, hooks.issuer->Join(caller, request.request()));
  response->set_certificate(std::move(made.certificate));
  response->set_authorities(std::move(made.authorities));
  response->set_worker(caller.worker);
  response->set_link_port(hooks.link_port);
  return absl::OkStatus();
}

void ListTokens(Gate& gate, int64_t after, v1::ListTokensResponse* response) {
  for (const TokenRecord& token : gate.List(after, kTokensOfAnAnswer + 1)) {
    if (response->tokens_size() == kTokensOfAnAnswer) return response->set_more(true);
    *response->add_tokens() = ToProto(token);
  }
}

std::string HexOf(const CertificateHash& hash) {
  return fmt::format("{:02x}", fmt::join(hash, ""));
}

absl::Status ListCertificates(Issuer& issuer, int64_t after,
                              v1::ListCertificatesResponse* response) {
  FAIRWAY_ASSIGN_OR_RETURN(const auto records, issuer.List(after, kTokensOfAnAnswer + 1));
  for (const CertificateRecord& record : records) {
    if (response->certificates_size() == kTokensOfAnAnswer) {
      response->set_more(true);
      break;
    }
    v1::Certificate* const to = response->add_certificates();
    to->set_id(record.id);
    to->set_worker(record.worker);
    to->set_serial(record.facts.serial);
    to->set_sha256(HexOf(record.facts.hash));
    to->set_issued_s(record.issued.time_since_epoch().count());
    to->set_expires_s(record.facts.end.time_since_epoch().count());
    to->set_revoked_s(record.revoked.time_since_epoch().count());
    to->set_token(record.token);
  }
  return absl::OkStatus();
}

class Implementation final : public AdminService {
 public:
  explicit Implementation(AdminHooks hooks) : methods_(hooks.access), hooks_(std::move(hooks)) {
    ServeCluster();
    ServeLogs(methods_, hooks_.logs);
    ServeListings(methods_, hooks_.loop, hooks_.cluster);
    ServeEvents(methods_, hooks_.loop, hooks_.events);
    ServeCordons(methods_, hooks_.loop, hooks_.cluster, hooks_.note);
    ServeTokens();
    ServeCertificates();
  }

  const RpcMethods& methods() const override { return methods_.all(); }

 private:
  template <typename Request, typename Response>
  using TokenWork =
      std::function<absl::Status(const Caller&, const Request& request, Response* response)>;

  void ServeCluster() {
    methods_.AddUnary<v1::GetStatusRequest, v1::GetStatusResponse>(
        "fairway.v1.Admin.GetStatus", [this](auto* call) {
          hooks_.loop->Post("admin GetStatus", [this, call] {
            call->response() = ToStatusResponse(hooks_.snapshot());
            call->response().set_clock_ms(std::chrono::floor<std::chrono::milliseconds>(
                                              std::chrono::system_clock::now().time_since_epoch())
                                              .count());
            call->Answer(absl::OkStatus());
          });
        });
    methods_.AddUnary<v1::RestartExecutorRequest, v1::RestartExecutorResponse>(
        "fairway.v1.Admin.RestartExecutor", [this](auto* call) {
          hooks_.loop->Post("admin RestartExecutor", [this, call] {
            const std::string& worker = call->request().worker();
            const auto ended = hooks_.restart_executor(worker);
            methods_.access().Record(call->caller(), Verb::kRestartExecutor, worker,
                                     ended.status());
            if (ended.ok()) call->response().set_incarnation(ended->value);
            call->Answer(ended.status());
          });
        });
    methods_.AddUnary<v1::ShutdownRequest, v1::ShutdownResponse>(
        "fairway.v1.Admin.Shutdown", [this](auto* call) {
          methods_.access().Record(call->caller(), Verb::kEndCluster, "", absl::OkStatus());
          hooks_.loop->Post("admin Shutdown", [this, call] {
            const ControllerSnapshot snapshot = hooks_.snapshot();
            call->response().set_controller_pid(snapshot.controller_pid);
            call->response().set_launcher_pid(snapshot.launcher_pid);
            call->Answer(absl::OkStatus());
            hooks_.shutdown();
          });
        });
  }

  void ServeTokens() {
    ServeOnTokens<v1::CreateTokenRequest, v1::CreateTokenResponse>(
        "fairway.v1.Admin.CreateToken",
        [this](const Caller& caller, const auto& request, auto* response) {
          const absl::Status made = fairway::CreateToken(hooks_, request, response);
          methods_.access().Record(caller, Verb::kChangeTokens, ObjectOf(*response), made);
          return made;
        });
    ServeOnTokens<v1::ListTokensRequest, v1::ListTokensResponse>(
        "fairway.v1.Admin.ListTokens", [this](const Caller&, const auto& request, auto* response) {
          fairway::ListTokens(*hooks_.gate, request.after(), response);
          return absl::OkStatus();
        });
    methods_.AddUnary<v1::RevokeTokenRequest, v1::RevokeTokenResponse>(
        "fairway.v1.Admin.RevokeToken", [this](auto* call) { Revoke(call); });
    ServeOnTokens<v1::JoinRequest, v1::JoinResponse>(
        "fairway.v1.Admin.Join", [this](const Caller& caller, const auto& request, auto* response) {
          const absl::Status joined = fairway::Join(hooks_, caller, request, response);
          methods_.access().Record(caller, Verb::kJoin, "worker " + caller.worker, joined);
          return joined;
        });
  }

  void ServeCertificates() {
    ServeOnTokens<v1::ListCertificatesRequest, v1::ListCertificatesResponse>(
        "fairway.v1.Admin.ListCertificates",
        [this](const Caller&, const auto& request, auto* response) {
          return fairway::ListCertificates(*hooks_.issuer, request.after(), response);
        });
    methods_.AddUnary<v1::RevokeCertificatesRequest, v1::RevokeCertificatesResponse>(
        "fairway.v1.Admin.RevokeCertificates", [this](auto* call) { RevokeWorker(call); });
  }

  // Serves `rpc` by `work`, which may wait for the disk.
  template <typename Request, typename Response>
  void ServeOnTokens(const std::string& rpc, TokenWork<Request, Response> work) {
    methods_.AddUnary<Request, Response>(rpc, [this, work = std::move(work)](auto* call) {
      const absl::Status room = RoomOnTokens(call->caller());
      if (!room.ok()) return call->Answer(room);
      hooks_.tokens->Run(
          [this, call, &work] {
            // The token may have been revoked while this waited.
            const absl::Status counts = hooks_.gate->Check(call->caller().token);
            call->Answer(counts.ok() ? work(call->caller(), call->request(), &call->response())
                                     : counts);
          },
          OwnerOf(call->caller()));
    });
  }

  // Counts before it is on the disk, so that nobody whose calls wait for the disk holds it up.
  void Revoke(UnaryCall<v1::RevokeTokenRequest, v1::RevokeTokenResponse>* call) {
    const int64_t id = call->request().id();
    const auto answer = [this, call, id](const absl::Status& revoked) {
      methods_.access().Record(call->caller(), Verb::kChangeTokens,
                               fmt::format("revoke token {}", id), revoked);
      call->Answer(revoked);
    };
    if (hooks_.gate != nullptr) hooks_.gate->RevokeHere(id);
    const absl::Status room = RoomOnTokens(call->caller());
    if (hooks_.gate == nullptr) return call->Answer(room);
    if (!room.ok()) return answer(Gate::NotWrittenDown(id, room));
    // It is written down also if the caller's own token counts no longer.
    hooks_.tokens->Run([this, id, answer] { answer(hooks_.gate->Revoke(id)); },
                       OwnerOf(call->caller()));
  }

  // As Revoke.
  void RevokeWorker(
      UnaryCall<v1::RevokeCertificatesRequest, v1::RevokeCertificatesResponse>* call) {
    const std::string& worker = call->request().worker();
    const auto answer = [this, call](const absl::Status& revoked) {
      methods_.access().Record(call->caller(), Verb::kRevokeCertificates,
                               "worker " + BoundedText(call->request().worker(), 200), revoked);
      call->Answer(revoked);
    };
    const absl::Status room = RoomOnTokens(call->caller());
    if (hooks_.issuer == nullptr) return call->Answer(room);
    if (const absl::Status named = hooks_.issuer->RevokeHere(worker); !named.ok())
      return answer(named);
    EndWorker(worker);
    if (!room.ok()) return answer(Issuer::NotWrittenDown(worker, room));
    hooks_.tokens->Run(
        [this, call, answer] {
          const auto revoked = hooks_.issuer->Revoke(call->request().worker());
          if (revoked.ok()) {
            call->response().set_certificates(revoked->certificates);
            call->response().set_tokens(revoked->tokens);
          }
          EndWorker(call->request().worker());  // it may have joined meanwhile
          answer(revoked.status());
        },
        OwnerOf(call->caller()));
  }
  void EndWorker(const std::string& worker) {
    hooks_.loop->Post("revoke certificates", [this, worker] {
      hooks_.end_worker(worker, "its certificate was revoked by an admin");
    });
  }

  // Callers take turns.
  static uint64_t OwnerOf(const Caller& caller) { return static_cast<uint64_t>(caller.token); }

  // Whether one more call about tokens may wait for the disk.
  absl::Status RoomOnTokens(const Caller& caller) const {
    if (hooks_.gate == nullptr) {
      return Error(absl::StatusCode::kFailedPrecondition,
                   "this controller has no certificates (--tls-ca), so it asks nobody for a token");
    }
    const size_t all = hooks_.tokens->pending(), own = hooks_.tokens->pending(OwnerOf(caller));
    // Workers that join leave most of the room to admins, and each admin leaves others what it has.
    const bool worker = caller.role == TokenRole::kWorker;
    if (worker ? all < kMostJoining : all + own < kMostOnTokens) return absl::OkStatus();
    return Error(
        absl::StatusCode::kResourceExhausted,
        "{} calls about tokens wait for the controller's disk, {} of them with this token, "
        "and no more may; try again",
        all, own);
  }

  GatedMethods methods_;
  const AdminHooks hooks_;
};

void FillExecutor(const ControllerSnapshot& snapshot, const ExecutorStatus& from,
                  v1::Executor* to) {
  to->set_id(from.id.value);
  to->set_worker(from.spec.worker);
  to->set_island(from.spec.island);
  to->set_up(from.up);
  to->set_incarnation(from.spec.incarnation.value);
  to->set_platform(from.spec.platform_name);
  to->set_device_kind(from.spec.device_kind);
  to->set_runtime(from.spec.runtime);
  to->set_platform_version(from.spec.platform_version);
  to->set_data_endpoint(from.spec.data_endpoint);
  to->set_last_error(ValidUtf8(from.last_error));
  if (const auto it = snapshot.stalled.find(from.id); it != snapshot.stalled.end())
    to->set_stalled_ms(it->second.count());
  if (const auto it = snapshot.health.find(from.id); it != snapshot.health.end()) {
    const LinkHealth& health = it->second;
    to->set_open_commands(health.open_entries);
    to->set_open_command_bytes(health.open_bytes);
    to->set_still_ms(health.still.count());
    to->set_round_trip_us(
        std::chrono::duration_cast<std::chrono::microseconds>(health.round_trip).count());
    to->set_links_resumed(health.links_resumed);
    to->set_log_from(health.log_from);
    to->set_link_protocol(health.protocol);
  }
  to->set_supervisor_connected(snapshot.supervisors.contains(from.spec.worker));
  if (const auto it = snapshot.executor_fetches.find(from.id);
      it != snapshot.executor_fetches.end()) {
    to->set_executor_fetches(it->second);
  }
  for (const DeviceUsage& usage : snapshot.usage) {
    if (usage.executor != from.id) continue;
    v1::Device* const device = to->add_devices();
    device->set_id(usage.device.value);
    device->set_local_ordinal(usage.local_ordinal);
    device->set_memory_used(usage.used);
    device->set_memory_limit(usage.limit);
  }
}

void FillCordon(const Cordon& from, v1::Island* to) {
  to->set_cordoned_by(from.by);
  to->set_cordoned_s(from.since.time_since_epoch().count());
  to->set_drained(from.drained);
}

// The worker of the island's executor that has acknowledged nothing for longest, if that is longer
// than an executor that keeps up needs: it acknowledges with its heartbeats at the latest.
std::string LaggingWorker(const ControllerSnapshot& snapshot, IslandId island) {
  std::chrono::milliseconds most{999};
  std::string worker;
  for (const ExecutorStatus& executor : snapshot.executors) {
    const auto it = snapshot.health.find(executor.id);
    if (executor.island != island || it == snapshot.health.end() || it->second.still <= most)
      continue;
    most = it->second.still;
    worker = executor.spec.worker;
  }
  return worker;
}

}  // namespace

v1::GetStatusResponse ToStatusResponse(const ControllerSnapshot& snapshot) {
  v1::GetStatusResponse out;
  out.set_version(snapshot.version);
  out.set_incarnation(snapshot.incarnation.value);
  out.set_host(ValidUtf8(snapshot.host));
  out.set_controller_pid(snapshot.controller_pid);
  out.set_launcher_pid(snapshot.launcher_pid);
  out.set_uptime_ms(snapshot.uptime_ms);
  out.set_http_address(snapshot.http_address);
  out.set_link_address(snapshot.link_address);
  out.set_log_dir(ValidUtf8(snapshot.log_dir));
  for (const IslandStatus& from : snapshot.islands) {
    v1::Island* const to = out.add_islands();
    to->set_id(from.id.value);
    to->set_name(from.name);
    to->set_up(from.up);
    to->set_epoch(from.epoch);
    to->set_gangs_launched(from.gangs_launched);
    to->set_queued(from.queued);
    to->set_prepared(from.prepared);
    to->set_in_flight(from.in_flight);
    to->set_sessions(from.sessions);
    to->set_nodes_given_up(from.given_up);
    to->set_lagging_worker(LaggingWorker(snapshot, from.id));
    if (from.cordon.has_value()) FillCordon(*from.cordon, to);
  }
  for (const auto& [name, cordon] : snapshot.absent_cordons) {
    v1::Island* const to = out.add_absent_islands();
    to->set_name(name);
    to->set_absent(true);
    FillCordon(cordon, to);
  }
  for (const ExecutorStatus& executor : snapshot.executors)
    FillExecutor(snapshot, executor, out.add_executors());
  for (const RelayStatus& from : snapshot.relays) {
    v1::Relay* const to = out.add_relays();
    to->set_worker(from.worker);
    to->set_island(from.island);
    to->set_above(from.above);
    to->set_endpoint(from.endpoint);
    to->set_executors(static_cast<uint32_t>(from.executors));
    to->set_relays(static_cast<uint32_t>(from.relays));
    to->set_messages(from.passed_on.messages);
    to->set_bytes(from.passed_on.bytes);
  }
  v1::Counts* const counts = out.mutable_counts();
  counts->set_sessions(snapshot.counts.sessions);
  counts->set_arrays(snapshot.counts.arrays);
  counts->set_shard_groups(snapshot.counts.groups);
  counts->set_nodes_unfinished(snapshot.counts.nodes);
  counts->set_executables(snapshot.counts.executables);
  counts->set_compilations(snapshot.compilations);
  counts->set_compile_cache_hits(snapshot.compile_cache_hits);
  counts->set_inline_fetches(snapshot.counts.inline_hits);
  counts->set_executor_fetches(snapshot.counts.executor_fetches);
  counts->set_uploaded_bytes(snapshot.uploaded_bytes);
  counts->set_fetched_bytes(snapshot.fetched_bytes);
  return out;
}

std::unique_ptr<AdminService> MakeAdminService(AdminHooks hooks) {
  return std::make_unique<Implementation>(std::move(hooks));
}

}  // namespace fairway
