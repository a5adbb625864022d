// SPDX-License-Identifier: Apache-2.0
#include "client/hosts/local_file.h"

#include <openssl/evp.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string_view>
#include <vector>

namespace fairway {
namespace {

constexpr size_t kDigits = 12;  // of a name

class Digest {
 public:
  Digest() : context_(::EVP_MD_CTX_new(), ::EVP_MD_CTX_free) {
    ::EVP_DigestInit_ex(context_.get(), ::EVP_sha256(), nullptr);
  }
  void Add(std::string_view bytes) {
    ::EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size());
  }
  std::string Hex() {
    std::array<unsigned char, 32> bytes{};
    ::EVP_DigestFinal_ex(context_.get(), bytes.data(), nullptr);
    std::string out;
    for (const unsigned char byte : bytes) out += fmt::format("{:02x}", byte);
    return out;
  }

 private:
  std::unique_ptr<EVP_MD_CTX, decltype(&::EVP_MD_CTX_free)> context_;
};

struct Read {
  std::string digits;
  std::string head, tail;  // the first two and the last four bytes
  int64_t bytes = 0;
  std::string looks;
};

// Changes whenever the file is written to, replaced, or has been replaced for a while.
std::string LooksOf(const std::string& path) {
  struct stat facts {};
  if (::stat(path.c_str(), &facts) != 0) return "";
  return fmt::format("{} {} {} {}.{} {}.{}", facts.st_dev, facts.st_ino, facts.st_size,
                     facts.st_mtim.tv_sec, facts.st_mtim.tv_nsec, facts.st_ctim.tv_sec,
                     facts.st_ctim.tv_nsec);
}

absl::StatusOr<Read> ReadFile(const std::string& path) {
  Read out;
  out.looks = LooksOf(path);
  std::ifstream file(path, std::ios::binary);
  std::vector<char> buffer(size_t{1} << 20);
  Digest digest;
  while (file && (file.read(buffer.data(), static_cast<std::streamsize>(buffer.size())),
                  file.gcount() > 0)) {
    const std::string_view bytes(buffer.data(), static_cast<size_t>(file.gcount()));
    digest.Add(bytes);
    if (out.bytes == 0) out.head = bytes.substr(0, 2);
    out.tail += bytes.substr(bytes.size() - std::min<size_t>(bytes.size(), 4));
    out.tail.erase(0, out.tail.size() - std::min<size_t>(out.tail.size(), 4));
    out.bytes += file.gcount();
  }
  if (!file.eof() || out.bytes == 0) {
    return Error(absl::StatusCode::kNotFound, "cannot read {}: {}", path,
                 errno != 0 ? std::strerror(errno) : "it is empty");
  }
  out.digits = digest.Hex().substr(0, kDigits);
  return out;
}

}  // namespace

absl::StatusOr<Package> ReadPackage(const std::string& path) {
  constexpr std::string_view kStart = "fairway-";
  constexpr std::string_view kSystem = "-linux-";
  constexpr std::string_view kEnd = ".tar.gz";
  const std::string name = std::filesystem::path(path).filename().string();
  const size_t system = name.find(kSystem);
  const auto wrong = [&] {
    return InvalidArgument(
        "package {} is no fairway-VERSION-linux-MACHINE.tar.gz, which `./dev package tarball` "
        "makes",
        path);
  };
  if (!name.starts_with(kStart) || !name.ends_with(kEnd) || system == std::string::npos ||
      name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                             "0123456789-_.+") != std::string::npos)
    return wrong();
  const auto read = ReadFile(path);
  if (!read.ok()) return Annotate(read.status(), "package");
  if (read->head != "\x1f\x8b") return wrong();
  Package out{.path = path, .looks = read->looks};
  const size_t machine = system + kSystem.size();
  out.machine = name.substr(machine, name.size() - kEnd.size() - machine);
  out.release =
      fmt::format("{}-{}", name.substr(kStart.size(), system - kStart.size()), read->digits);
  // gzip ends with the size of what it packed.
  for (size_t i = 0; i < read->tail.size(); ++i)
    out.bytes |= static_cast<int64_t>(static_cast<unsigned char>(read->tail[i])) << (8 * i);
  return out;
}

absl::StatusOr<Plugin> ReadPlugin(const std::string& path) {
  if (path.empty()) return Plugin{};
  const auto read = ReadFile(path);
  if (!read.ok()) return Annotate(read.status(), "plugin");
  return Plugin{.path = path, .digits = read->digits, .bytes = read->bytes, .looks = read->looks};
}

absl::Status CheckUnchanged(const std::string& path, std::string_view looks) {
  if (LooksOf(path) == looks) return absl::OkStatus();
  return Error(absl::StatusCode::kFailedPrecondition,
               "{} was changed while it was copied, so nobody knows what arrived: type the same "
               "again",
               path);
}

std::string Sha256(std::string_view text) {
  Digest digest;
  digest.Add(text);
  return digest.Hex();
}

}  // namespace fairway
