// SPDX-License-Identifier: Apache-2.0
// Who may do what. The one place that decides it, for gRPC and HTTP.
#ifndef FAIRWAY_IDENTITY_AUTHORIZE_H_
#define FAIRWAY_IDENTITY_AUTHORIZE_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "identity/token.h"

namespace fairway {

// What is asked of a controller.
enum class Verb : uint8_t {
  kSeeStatus,        // islands, executors, memory, counts
  kReadLogs,         // which may have names of any tenant's programs
  kRestartExecutor,  // what it holds is lost, for every session
  kEndCluster,
  kSeeTokens,     // not their secrets
  kChangeTokens,  // make or revoke one
  kOpenSession,   // of the caller's tenant
  kNegotiate,     // the version of a protocol, before a session
  kUseSession,    // bytes and callbacks that go beside a session's stream
  kReadMetrics,
  kJoin,  // get a worker's certificate
  kSeeCertificates,
  kRevokeCertificates,
  kSeeSessions,   // what they have: see SeesAllTenants
  kCordonIsland,  // or drain one, or end that
  kSeeEvents,     // of sessions as kSeeSessions, of islands, and of hosts that were refused
};
inline constexpr std::array kVerbs = {
    Verb::kSeeStatus,          Verb::kReadLogs,    Verb::kRestartExecutor,
    Verb::kEndCluster,         Verb::kSeeTokens,   Verb::kChangeTokens,
    Verb::kOpenSession,        Verb::kNegotiate,   Verb::kUseSession,
    Verb::kReadMetrics,        Verb::kJoin,        Verb::kSeeCertificates,
    Verb::kRevokeCertificates, Verb::kSeeSessions, Verb::kCordonIsland,
    Verb::kSeeEvents};

// Whose the object is that the verb is about.
enum class Whose : uint8_t {
  kNone,     // nobody's: the cluster's, or not there yet
  kOwn,      // of the caller's tenant
  kForeign,  // of another tenant
};

// Whether one with this role may do that. Pure.
bool Authorize(TokenRole role, Verb verb, Whose whose);

// Whether one with this role, if it may list objects of sessions, sees those of all tenants. Else
// it sees those of its own.
bool SeesAllTenants(TokenRole role);

// "open a session": for messages.
std::string_view Described(Verb verb);
// "admin or operator": the roles that may do it, for messages.
std::string RolesFor(Verb verb);

// What a call of this method asks for; nullopt: nobody may call it. `rpc`: as descriptors name it,
// "fairway.v1.Admin.GetStatus".
std::optional<Verb> VerbOf(std::string_view rpc);

}  // namespace fairway

#endif  // FAIRWAY_IDENTITY_AUTHORIZE_H_
