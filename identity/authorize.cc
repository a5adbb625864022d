// SPDX-License-Identifier: Apache-2.0
#include "identity/authorize.h"

#include <algorithm>
#include <initializer_list>

namespace fairway {
namespace {

constexpr uint8_t Bit(TokenRole role) { return static_cast<uint8_t>(1U << static_cast<int>(role)); }

constexpr uint8_t kAdmins = Bit(TokenRole::kAdmin);
constexpr uint8_t kOperators = kAdmins | Bit(TokenRole::kOperator);
constexpr uint8_t kViewers = kOperators | Bit(TokenRole::kViewer);
constexpr uint8_t kUsers = Bit(TokenRole::kUser);
constexpr uint8_t kWorkers = Bit(TokenRole::kWorker);

struct Rule {
  uint8_t roles = 0;           // bits
  Whose whose = Whose::kNone;  // the only objects that it may be about
};

// An admin looks after a cluster, and has no tenant: who wants a session needs a user's token, so
// that the token of the cluster does not lie where programs run.
constexpr Rule RuleOf(Verb verb) {
  switch (verb) {
    case Verb::kSeeStatus:
    case Verb::kSeeSessions:
    case Verb::kSeeEvents:
      return {kViewers | kUsers, Whose::kNone};
    case Verb::kReadLogs:
    case Verb::kRestartExecutor:
    case Verb::kEndCluster:
    case Verb::kCordonIsland:
      return {kOperators, Whose::kNone};
    case Verb::kSeeTokens:
    case Verb::kChangeTokens:
    case Verb::kSeeCertificates:
    case Verb::kRevokeCertificates:
      return {kAdmins, Whose::kNone};
    case Verb::kOpenSession:
    case Verb::kNegotiate:
      return {kUsers, Whose::kNone};
    case Verb::kUseSession:
      return {kUsers, Whose::kOwn};
    case Verb::kReadMetrics:
      return {kViewers, Whose::kNone};
    case Verb::kJoin:
      return {kWorkers, Whose::kNone};
  }
  return {};
}

struct Method {
  std::string_view rpc;
  Verb verb;
};
constexpr Method kMethods[] = {
    {"fairway.v1.Admin.GetStatus", Verb::kSeeStatus},
    {"fairway.v1.Admin.ListSessions", Verb::kSeeSessions},
    {"fairway.v1.Admin.ListArrays", Verb::kSeeSessions},
    {"fairway.v1.Admin.ListPrograms", Verb::kSeeSessions},
    {"fairway.v1.Admin.ListNodes", Verb::kSeeSessions},
    {"fairway.v1.Admin.ListEvents", Verb::kSeeEvents},
    {"fairway.v1.Admin.GetLogs", Verb::kReadLogs},
    {"fairway.v1.Admin.RestartExecutor", Verb::kRestartExecutor},
    {"fairway.v1.Admin.CordonIsland", Verb::kCordonIsland},
    {"fairway.v1.Admin.UncordonIsland", Verb::kCordonIsland},
    {"fairway.v1.Admin.DrainIsland", Verb::kCordonIsland},
    {"fairway.v1.Admin.Shutdown", Verb::kEndCluster},
    {"fairway.v1.Admin.CreateToken", Verb::kChangeTokens},
    {"fairway.v1.Admin.ListTokens", Verb::kSeeTokens},
    {"fairway.v1.Admin.RevokeToken", Verb::kChangeTokens},
    {"fairway.v1.Admin.Join", Verb::kJoin},
    {"fairway.v1.Admin.ListCertificates", Verb::kSeeCertificates},
    {"fairway.v1.Admin.RevokeCertificates", Verb::kRevokeCertificates},
    {"fairway.v1.Client.Session", Verb::kOpenSession},
    {"fairway.v1.Callbacks.Serve", Verb::kUseSession},
    {"xla.ifrt.proxy.GrpcIfrtService.GetVersion", Verb::kNegotiate},
    {"xla.ifrt.proxy.GrpcIfrtService.IfrtSession", Verb::kOpenSession},
    {"xla.ifrt.proxy.GrpcIfrtService.HostBufferStore", Verb::kUseSession},
    {"xla.ifrt.proxy.GrpcIfrtService.HostBufferLookup", Verb::kUseSession},
    {"xla.ifrt.proxy.GrpcIfrtService.HostBufferDelete", Verb::kUseSession},
    {"xla.ifrt.proxy.GrpcIfrtService.HostBufferReadFromDisk", Verb::kUseSession},
};

}  // namespace

bool Authorize(TokenRole role, Verb verb, Whose whose) {
  const Rule rule = RuleOf(verb);
  return (rule.roles & Bit(role)) != 0 && whose == rule.whose;
}

bool SeesAllTenants(TokenRole role) { return (kViewers & Bit(role)) != 0; }

std::string_view Described(Verb verb) {
  switch (verb) {
    case Verb::kSeeStatus:
      return "see the cluster's status";
    case Verb::kReadLogs:
      return "read logs";
    case Verb::kRestartExecutor:
      return "restart an executor";
    case Verb::kEndCluster:
      return "end the cluster";
    case Verb::kSeeTokens:
      return "list tokens";
    case Verb::kChangeTokens:
      return "make or revoke tokens";
    case Verb::kOpenSession:
    case Verb::kNegotiate:
      return "open a session";
    case Verb::kUseSession:
      return "use a session";
    case Verb::kReadMetrics:
      return "read metrics";
    case Verb::kJoin:
      return "join as a worker";
    case Verb::kSeeCertificates:
      return "list certificates";
    case Verb::kRevokeCertificates:
      return "revoke certificates";
    case Verb::kSeeSessions:
      return "see what sessions have";
    case Verb::kCordonIsland:
      return "cordon or drain an island";
    case Verb::kSeeEvents:
      return "see events";
  }
  return "";
}

std::string RolesFor(Verb verb) {
  std::string out;
  for (const TokenRole role : kTokenRoles) {
    if (!Authorize(role, verb, RuleOf(verb).whose)) continue;
    if (!out.empty()) out += " or ";
    out += NameOf(role);
  }
  return out;
}

std::optional<Verb> VerbOf(std::string_view rpc) {
  const auto* const found = std::ranges::find(kMethods, rpc, &Method::rpc);
  if (found == std::end(kMethods)) return std::nullopt;
  return found->verb;
}

}  // namespace fairway
