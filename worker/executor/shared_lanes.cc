// SPDX-License-Identifier: Apache-2.0
#include "worker/executor/shared_lanes.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <random>
#include <utility>

namespace fairway {
namespace {

using lanes::Head;
using lanes::kFileBytes;
using lanes::kLaneBytes;
using lanes::kMaxLanes;
using lanes::kPage;
using lanes::Lane;
using lanes::Slot;

static_assert(sizeof(Head) <= kPage && sizeof(Lane) <= kPage);
static_assert(std::atomic<uint64_t>::is_always_lock_free);

constexpr char kName[] = "fairway-lanes";
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

// What AddressFor tells.
struct Address {
  int32_t pid = 0;
  int32_t fd = 0;
  uint64_t secret[2] = {0, 0};
  int32_t lane = 0;
  int32_t unused = 0;
};
static_assert(sizeof(Address) == SharedLanes::kAddressBytes);

size_t OffsetOf(int32_t lane) { return kPage + static_cast<size_t>(lane) * kLaneBytes; }

char* Map(int fd, size_t offset, size_t bytes) {
  void* map =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, static_cast<off_t>(offset));
  return map == MAP_FAILED ? nullptr : static_cast<char*>(map);
}

absl::Status Unusable(std::string_view why) {
  return Error(absl::StatusCode::kFailedPrecondition, "no shared memory with a neighbour: {}", why);
}

// Opens the file, unless it is no memfd of ours. The number may by now be another file's.
absl::StatusOr<int> OpenLanes(const Address& address) {
  const std::string path = fmt::format("/proc/{}/fd/{}", address.pid, address.fd);
  char target[64] = {};
  if (readlink(path.c_str(), target, sizeof target - 1) < 0)
    return Unusable(fmt::format("{}: {}", path, std::strerror(errno)));
  if (!std::string_view(target).starts_with(fmt::format("/memfd:{}", kName)))
    return Unusable(fmt::format("{} is {}", path, target));
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return Unusable(fmt::format("{}: {}", path, std::strerror(errno)));
  struct stat about {};
  uint64_t secret[2] = {0, 0};
  const bool good = fstat(fd, &about) == 0 && S_ISREG(about.st_mode) && about.st_uid == geteuid() &&
                    about.st_size == kFileBytes && fcntl(fd, F_GET_SEALS) == kSeals &&
                    pread(fd, secret, sizeof secret, 0) == sizeof secret &&
                    std::memcmp(secret, address.secret, sizeof secret) == 0;
  if (good) return fd;
  close(fd);
  return Unusable(path + " is another file");
}

}  // namespace

// ---- The owner's side ----

LaneReader::LaneReader(std::shared_ptr<void> file, char* lane)
    : file_(std::move(file)), lane_(reinterpret_cast<Lane*>(lane)), bytes_(lane + kPage) {}

absl::StatusOr<std::optional<LaneReader::Front>> LaneReader::Peek() {
  const uint64_t there = lane_->written.load(std::memory_order_acquire) - read_;
  if (!broken_ && there == 0) return std::nullopt;
  const uint64_t at = read_ % kLaneSlots;
  // Read once, as the sender could change it.
  const volatile Slot& slot = lane_->slots[at];
  const Front front{{slot.launch, slot.round, slot.part, {}},
                    {bytes_ + at * kMaxPushBytes, slot.bytes}};
  if (broken_ || there > kLaneSlots || front.bytes.size() > kMaxPushBytes) {
    broken_ = true;
    return absl::DataLossError("a neighbour has broken the memory that it pushes to");
  }
  return front;
}

void LaneReader::Pop() { lane_->read.store(++read_, std::memory_order_release); }

std::unique_ptr<SharedLanes> SharedLanes::Make() {
  const int fd = memfd_create(kName, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return nullptr;
  char* map = nullptr;
  if (ftruncate(fd, kFileBytes) == 0 && fcntl(fd, F_ADD_SEALS, kSeals) == 0)
    map = Map(fd, 0, kFileBytes);
  if (map == nullptr) {
    close(fd);
    return nullptr;
  }
  std::shared_ptr<char> file(map, [](char* p) { munmap(p, kFileBytes); });
  return std::unique_ptr<SharedLanes>(new SharedLanes(fd, std::move(file)));
}

SharedLanes::SharedLanes(int fd, std::shared_ptr<char> file) : fd_(fd), file_(std::move(file)) {
  std::random_device random;
  for (uint64_t& word : reinterpret_cast<Head*>(file_.get())->secret)
    word = uint64_t{random()} << 32 | random();
}

SharedLanes::~SharedLanes() { close(fd_); }

std::shared_ptr<Bell> SharedLanes::bell() const {
  return {file_, &reinterpret_cast<Head*>(file_.get())->bell};
}

absl::StatusOr<std::string> SharedLanes::AddressFor(Incarnation sender) {
  auto found = lanes_.find(sender);
  if (found == lanes_.end()) {
    const auto lane = static_cast<int32_t>(lanes_.size());
    const auto offset = static_cast<off_t>(OffsetOf(lane));
    // Reserves the memory now: if a page finds no room when it is first touched, a process ends.
    if (lanes_.size() >= kMaxLanes || posix_fallocate(fd_, offset, kLaneBytes) != 0)
      return absl::ResourceExhaustedError("no lane is left for another neighbour");
    std::unique_ptr<LaneReader> reader(new LaneReader(file_, file_.get() + offset));
    found = lanes_.emplace(sender, std::pair(lane, std::move(reader))).first;
  }
  Address address{::getpid(), fd_, {}, found->second.first, 0};
  std::memcpy(address.secret, reinterpret_cast<Head*>(file_.get())->secret, sizeof address.secret);
  return std::string(reinterpret_cast<const char*>(&address), sizeof address);
}

LaneReader* SharedLanes::LaneOf(Incarnation sender) {
  const auto found = lanes_.find(sender);
  return found == lanes_.end() ? nullptr : found->second.second.get();
}

// ---- The sender's side ----

absl::StatusOr<std::unique_ptr<LaneWriter>> LaneWriter::Open(std::string_view bytes) {
  Address address;
  if (bytes.size() != sizeof address) return Unusable("its address is unreadable");
  std::memcpy(&address, bytes.data(), sizeof address);
  if (address.lane < 0 || static_cast<size_t>(address.lane) >= kMaxLanes)
    return Unusable("its address is unreadable");
  FAIRWAY_ASSIGN_OR_RETURN(const int fd, OpenLanes(address));
  char* head = Map(fd, 0, kPage);
  char* lane = Map(fd, OffsetOf(address.lane), kLaneBytes);
  close(fd);
  if (head != nullptr && lane != nullptr)
    return std::unique_ptr<LaneWriter>(new LaneWriter(reinterpret_cast<Head*>(head), lane));
  if (head != nullptr) munmap(head, kPage);
  if (lane != nullptr) munmap(lane, kLaneBytes);
  return Unusable("it cannot be mapped");
}

LaneWriter::LaneWriter(Head* head, char* lane)
    : head_(head),
      lane_(lane),
      written_(reinterpret_cast<Lane*>(lane)->written.load(std::memory_order_relaxed)) {}

LaneWriter::~LaneWriter() {
  munmap(head_, kPage);
  munmap(lane_, kLaneBytes);
}

bool LaneWriter::HasRoom() const {
  const auto* lane = reinterpret_cast<const Lane*>(lane_);
  return written_ - lane->read.load(std::memory_order_acquire) < kLaneSlots;
}

void LaneWriter::Write(const PushName& name, std::string_view bytes) {
  auto* lane = reinterpret_cast<Lane*>(lane_);
  const uint64_t at = written_ % kLaneSlots;
  lane->slots[at] = {name.launch, name.round, name.part, static_cast<uint32_t>(bytes.size())};
  if (!bytes.empty()) std::memcpy(lane_ + kPage + at * kMaxPushBytes, bytes.data(), bytes.size());
  lane->written.store(++written_, std::memory_order_release);
  head_->bell.Ring();
}

}  // namespace fairway
