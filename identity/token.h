// SPDX-License-Identifier: Apache-2.0
// Tokens: who a client is. Whoever has the secret of one has its role.
#ifndef FAIRWAY_IDENTITY_TOKEN_H_
#define FAIRWAY_IDENTITY_TOKEN_H_

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace fairway {

// What a token is for. authorize.h says what each may do.
enum class TokenRole : uint8_t { kAdmin, kOperator, kUser, kViewer, kWorker };
inline constexpr std::array kTokenRoles = {TokenRole::kAdmin, TokenRole::kOperator,
                                           TokenRole::kUser, TokenRole::kViewer,
                                           TokenRole::kWorker};

// "admin", "operator", "user", "viewer", "worker".
std::string_view NameOf(TokenRole role);
// INVALID_ARGUMENT: the text is none of these.
absl::StatusOr<TokenRole> TokenRoleOf(std::string_view name);

// INVALID_ARGUMENT: a tenant's name has 1 to 64 characters: letters, digits, '.', '_' and '-'.
absl::Status CheckTenant(std::string_view name);

// SHA-256 of a secret. It may be kept where the secret may not.
using TokenHash = std::array<uint8_t, 32>;

// Makes a new secret: "fw_" and 64 hexadecimal digits, which are 256 random bits.
std::string MakeTokenSecret();
// INVALID_ARGUMENT: the text is no secret; the message does not have it.
absl::StatusOr<TokenHash> HashOfSecret(std::string_view secret);

// Returns the secret in a file, which may be /dev/fd/N. INVALID_ARGUMENT: it cannot be read, other
// users can read it, or it has no secret. May block, if the file is a pipe or a terminal.
absl::StatusOr<std::string> ReadTokenFile(const std::string& path);

// What is known of a token besides its hash.
struct TokenRecord {
  static constexpr int64_t kAnyUses = -1;

  int64_t id = 0;  // 1, 2, 3, ...; never given again
  TokenRole role = TokenRole::kViewer;
  std::string tenant;  // of a user's; else empty
  std::string worker;  // of a worker's: the name under which it joins; else empty
  std::chrono::sys_seconds created{};
  std::chrono::sys_seconds expires{};
  int64_t uses = kAnyUses;             // left
  std::chrono::sys_seconds revoked{};  // the epoch: it is not
};

// Why the token counts no longer, with what to do; OK: it counts at `now`. One without a use left
// counts, too: whoever has joined by it may ask once more for what it got.
absl::Status CheckToken(const TokenRecord& token, std::chrono::sys_seconds now);

}  // namespace fairway

#endif  // FAIRWAY_IDENTITY_TOKEN_H_
