// SPDX-License-Identifier: Apache-2.0
#include "identity/token.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "base/time_text.h"

namespace fairway {
namespace {

constexpr std::string_view kSecretPrefix = "fw_";
constexpr size_t kSecretBytes = 32;
constexpr size_t kLongestTokenFile = 4096;
constexpr size_t kLongestTenant = 64;

bool IsHexDigit(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); }

bool IsNameCharacter(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' ||
         c == '_' || c == '-';
}

// Reads until the end of the file, or more than a token has.
absl::StatusOr<std::string> ReadAll(int fd, const std::string& path) {
  std::string text(kLongestTokenFile + 1, '\0');
  size_t size = 0;
  while (size < text.size()) {
    const ssize_t got = ::read(fd, text.data() + size, text.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return InvalidArgument("{}: cannot be read: {}", path, std::strerror(errno));
    if (got == 0) break;
    size += static_cast<size_t>(got);
  }
  text.resize(size);
  return text;
}

}  // namespace

std::string_view NameOf(TokenRole role) {
  switch (role) {
    case TokenRole::kAdmin:
      return "admin";
    case TokenRole::kOperator:
      return "operator";
    case TokenRole::kUser:
      return "user";
    case TokenRole::kViewer:
      return "viewer";
    case TokenRole::kWorker:
      return "worker";
  }
  return "";
}

absl::StatusOr<TokenRole> TokenRoleOf(std::string_view name) {
  for (const TokenRole role : kTokenRoles) {
    if (NameOf(role) == name) return role;
  }
  return InvalidArgument("'{}' is no role; there are admin, operator, user, viewer and worker",
                         name.substr(0, 64));
}

absl::Status CheckTenant(std::string_view name) {
  if (name.empty() || name.size() > kLongestTenant || !std::ranges::all_of(name, IsNameCharacter)) {
    return InvalidArgument("'{}' is no name of a tenant: 1 to {} letters, digits, '.', '_' and '-'",
                           name.substr(0, kLongestTenant), kLongestTenant);
  }
  return absl::OkStatus();
}

std::string MakeTokenSecret() {
  std::array<uint8_t, kSecretBytes> bytes{};
  for (size_t size = 0; size < bytes.size();) {
    const ssize_t got = ::getrandom(bytes.data() + size, bytes.size() - size, 0);
    if (got > 0) size += static_cast<size_t>(got);
  }
  std::string secret(kSecretPrefix);
  for (const uint8_t byte : bytes) secret += fmt::format("{:02x}", byte);
  OPENSSL_cleanse(bytes.data(), bytes.size());
  return secret;
}

absl::StatusOr<TokenHash> HashOfSecret(std::string_view secret) {
  const std::string_view digits = secret.substr(std::min(secret.size(), kSecretPrefix.size()));
  if (!secret.starts_with(kSecretPrefix) || digits.size() != 2 * kSecretBytes ||
      !std::ranges::all_of(digits, IsHexDigit)) {
    return InvalidArgument("it is no token: a token is {} and {} hexadecimal digits", kSecretPrefix,
                           2 * kSecretBytes);
  }
  TokenHash hash{};
  unsigned size = 0;
  if (EVP_Digest(secret.data(), secret.size(), hash.data(), &size, EVP_sha256(), nullptr) != 1 ||
      size != hash.size())
    return absl::InternalError("OpenSSL has no SHA-256");
  return hash;
}

absl::StatusOr<std::string> ReadTokenFile(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return InvalidArgument("{}: cannot be read: {}", path, std::strerror(errno));
  struct stat facts {};
  absl::StatusOr<std::string> text = std::string();
  if (::fstat(fd, &facts) == 0 && S_ISREG(facts.st_mode) && (facts.st_mode & 077) != 0) {
    text = InvalidArgument("{}: a token that other users can reach (mode {:03o}); chmod 600 it",
                           path, facts.st_mode & 0777);
  } else {
    text = ReadAll(fd, path);
  }
  ::close(fd);
  if (!text.ok()) return text.status();
  while (!text->empty() && std::strchr(" \t\r\n", text->back()) != nullptr) text->pop_back();
  if (const auto hash = HashOfSecret(*text); !hash.ok()) return Annotate(hash.status(), path);
  return text;
}

absl::Status CheckToken(const TokenRecord& token, std::chrono::sys_seconds now) {
  constexpr auto kCode = absl::StatusCode::kUnauthenticated;
  if (token.revoked != std::chrono::sys_seconds()) {
    return Error(kCode,
                 "token {} was revoked on {}; ask an admin for another (`fairway token create`)",
                 token.id, TimeText(token.revoked));
  }
  if (token.expires <= now) {
    return Error(kCode, "token {} expired on {}; ask an admin for another (`fairway token create`)",
                 token.id, TimeText(token.expires));
  }
  return absl::OkStatus();
}

}  // namespace fairway
