// SPDX-License-Identifier: Apache-2.0
#include "worker/gpus.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>

#include <fmt/ranges.h>

namespace fairway {
namespace {

constexpr std::string_view kUuid = "GPU-";
constexpr int kThousandths = static_cast<int>(1000 * kMostOfGpu);

std::optional<int64_t> Index(std::string_view text) {
  int64_t index = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), index);
  if (error != std::errc() || end != text.data() + text.size() || index < 0) return std::nullopt;
  return index;
}

bool IsUuid(std::string_view text) {
  constexpr std::string_view kPattern = "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
  if (text.size() != kPattern.size() || !text.starts_with(kUuid)) return false;
  for (size_t i = kUuid.size(); i < text.size(); ++i) {
    if (kPattern[i] == '-' ? text[i] != '-' : std::strchr("0123456789abcdef", text[i]) == nullptr)
      return false;
  }
  return true;
}

using Uuid = std::array<unsigned char, 16>;

std::string ToText(const Uuid& uuid) {
  std::string out(kUuid);
  for (size_t i = 0; i < uuid.size(); ++i)
    out += fmt::format("{}{:02x}", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid[i]);
  return out;
}

// The functions of NVIDIA's driver API that are used here; each returns 0 on success.
struct Driver {
  int (*init)(unsigned flags);
  int (*count)(int* count);
  int (*get)(int* device, int index);
  int (*uuid)(Uuid* uuid, int device);
};

// Returns the UUIDs of all GPUs, by index. UNAVAILABLE: no driver, or no GPU.
absl::StatusOr<std::vector<std::string>> AskDriver(const std::string& library) {
  void* handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr)
    return Error(absl::StatusCode::kUnavailable, "cannot open the driver: {}", ::dlerror());
  Driver driver{};
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(handle, name));
    return function != nullptr;
  };
  if (!find(driver.init, "cuInit") || !find(driver.count, "cuDeviceGetCount") ||
      !find(driver.get, "cuDeviceGet") ||
      !(find(driver.uuid, "cuDeviceGetUuid_v2") || find(driver.uuid, "cuDeviceGetUuid"))) {
    return Error(absl::StatusCode::kUnavailable, "{} is no driver of NVIDIA's", library);
  }
  int count = 0;
  if (const int error = driver.init(0); error != 0)
    return Error(absl::StatusCode::kUnavailable, "cuInit failed with error {}", error);
  if (const int error = driver.count(&count); error != 0)
    return Error(absl::StatusCode::kUnavailable, "cuDeviceGetCount failed with error {}", error);
  std::vector<std::string> out;
  for (int index = 0; index < count; ++index) {
    int device = 0;
    Uuid uuid{};
    if (driver.get(&device, index) != 0 || driver.uuid(&uuid, device) != 0)
      return Error(absl::StatusCode::kUnavailable, "the driver does not give the UUID of GPU {}",
                   index);
    out.push_back(ToText(uuid));
  }
  return out;
}

// Locks `wanted` bytes of the file, any that are free. Each byte stands for a thousandth of the
// GPU.
absl::StatusOr<int> LockBytes(int file, int wanted) {
  int got = 0;
  for (int byte = 0; byte < kThousandths && got < wanted; ++byte) {
    struct flock lock = {};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    lock.l_start = byte;
    lock.l_len = 1;
    if (::fcntl(file, F_OFD_SETLK, &lock) == 0) {
      ++got;
    } else if (errno != EAGAIN && errno != EACCES) {
      return Error(absl::StatusCode::kUnavailable, "{}", std::strerror(errno));
    }
  }
  return got;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> SplitGpus(std::string_view text) {
  std::vector<std::string> out;
  while (true) {
    const size_t comma = text.find(',');
    const std::string_view name = text.substr(0, comma);
    if (!Index(name).has_value() && !IsUuid(name)) {
      return InvalidArgument(
          "\"{}\" is no GPU; expected indexes or UUIDs with commas between, as 0,1 or "
          "GPU-01234567-89ab-cdef-0123-456789abcdef (`nvidia-smi -L` lists them)",
          name);
    }
    if (std::find(out.begin(), out.end(), name) != out.end())
      return InvalidArgument("GPU {} is listed twice", name);
    out.emplace_back(name);
    if (comma == std::string_view::npos) return out;
    text.remove_prefix(comma + 1);
  }
}

absl::StatusOr<std::vector<Gpu>> FindGpus(const std::vector<std::string>& names,
                                          const std::string& driver) {
  const auto uuids = AskDriver(driver);
  std::vector<Gpu> out;
  for (const std::string& name : names) {
    const std::optional<int64_t> index = Index(name);
    if (!uuids.ok()) {
      if (!index.has_value()) return Annotate(uuids.status(), "looking for " + name);
      out.push_back({*index, name});
      continue;
    }
    const auto found = std::find(uuids->begin(), uuids->end(), name);
    const auto at = index.value_or(found - uuids->begin());
    if (at >= static_cast<int64_t>(uuids->size())) {
      std::vector<std::string> known;
      for (size_t i = 0; i < uuids->size(); ++i)
        known.push_back(fmt::format("{} ({})", i, (*uuids)[i]));
      return Error(absl::StatusCode::kNotFound, "this host has no GPU {}; it has: {}", name,
                   known.empty() ? "none" : fmt::format("{}", fmt::join(known, ", ")));
    }
    out.push_back({at, (*uuids)[at]});
    for (size_t i = 0; i + 1 < out.size(); ++i) {
      if (out[i].index == at) return InvalidArgument("GPU {} is listed twice", name);
    }
  }
  return out;
}

absl::StatusOr<GpuShares> GpuShares::Take(const std::string& directory,
                                          const std::vector<Gpu>& gpus, double fraction) {
  const int wanted = static_cast<int>(std::ceil(1000 * fraction - 1e-6));
  GpuShares shares;
  for (const Gpu& gpu : gpus) {
    const std::string path = fmt::format("{}/fairway-gpu-{}.lock", directory, gpu.name);
    // In a directory that all may write to, the kernel lets nobody open another user's file with
    // O_CREAT.
    int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (file < 0 && errno == ENOENT) {
      file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
      if (file >= 0) ::fchmod(file, 0666);  // for workers of other users
    }
    if (file < 0) {
      return Error(absl::StatusCode::kUnavailable,
                   "cannot open {}, by which workers share GPU {}: {}", path, gpu.index,
                   std::strerror(errno));
    }
    shares.files_.push_back(file);
    FAIRWAY_ASSIGN_OR_RETURN(const int got, LockBytes(file, wanted));
    if (got < wanted) {
      return Error(absl::StatusCode::kResourceExhausted,
                   "{:.3g} of the memory of GPU {} ({}) is asked for, and other workers of this "
                   "host leave {:.3g} (together they may have {:.3g}): give each a smaller "
                   "--gpu-fraction, or this one another GPU by --gpus",
                   fraction, gpu.index, gpu.name, got / 1000.0, kMostOfGpu);
    }
  }
  return shares;
}

GpuShares::~GpuShares() {
  for (const int file : files_) ::close(file);
}

}  // namespace fairway
