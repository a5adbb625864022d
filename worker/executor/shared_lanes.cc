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
  int32_t head = 0;  // the descriptors
  int32_t lane = 0;
  int32_t unused = 0;
  uint64_t head_secret = 0;
  uint64_t lane_secret = 0;
};
static_assert(sizeof(Address) == SharedLanes::kAddressBytes);

char* Map(int fd, size_t bytes) {
  void* map = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return map == MAP_FAILED ? nullptr : static_cast<char*>(map);
}

absl::Status Unusable(std::string_view why) {
  return Error(absl::StatusCode::kFailedPrecondition, "no shared memory with a neighbour: {}", why);
}

// Maps the file, unless it is no memfd of ours. The number may by now be another file's.
absl::StatusOr<char*> MapTheirs(int32_t pid, int32_t number, uint64_t secret, size_t bytes) {
  const std::string path = fmt::format("/proc/{}/fd/{}", pid, number);
  char target[64] = {};
  if (readlink(path.c_str(), target, sizeof target - 1) < 0)
    return Unusable(fmt::format("{}: {}", path, std::strerror(errno)));
  if (!std::string_view(target).starts_with(fmt::format("/memfd:{}", kName)))
    return Unusable(fmt::format("{} is {}", path, target));
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return Unusable(fmt::format("{}: {}", path, std::strerror(errno)));
  struct stat about {};
  uint64_t there = 0;
  // A system may add seals of its own (vm.memfd_noexec).
  const bool good = fstat(fd, &about) == 0 && S_ISREG(about.st_mode) && about.st_uid == geteuid() &&
                    about.st_size == static_cast<off_t>(bytes) &&
                    (fcntl(fd, F_GET_SEALS) & kSeals) == kSeals &&
                    pread(fd, &there, sizeof there, 0) == sizeof there && there == secret;
  char* map = good ? Map(fd, bytes) : nullptr;
  close(fd);
  if (map != nullptr) return map;
  return Unusable(path + (good ? " cannot be mapped" : " is another file"));
}

}  // namespace

namespace lanes {

std::unique_ptr<File> File::Make(size_t bytes) {
  const int fd = memfd_create(kName, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return nullptr;
  const bool made =
      posix_fallocate(fd, 0, static_cast<off_t>(bytes)) == 0 && fcntl(fd, F_ADD_SEALS, kSeals) == 0;
  char* map = made ? Map(fd, bytes) : nullptr;
  if (map == nullptr) {
    close(fd);
    return nullptr;
  }
  std::random_device random;
  const uint64_t secret = uint64_t{random()} << 32 | random();
  std::memcpy(map, &secret, sizeof secret);
  return std::unique_ptr<File>(new File(fd, map, bytes));
}

File::~File() {
  munmap(data_, bytes_);
  close(fd_);
}

uint64_t File::secret() const {
  uint64_t secret = 0;
  std::memcpy(&secret, data_, sizeof secret);
  return secret;
}

}  // namespace lanes

// ---- The owner's side ----

LaneReader::LaneReader(std::unique_ptr<lanes::File> file)
    : file_(std::move(file)),
      lane_(reinterpret_cast<Lane*>(file_->data())),
      bytes_(file_->data() + kPage) {}

absl::StatusOr<std::optional<LaneReader::Front>> LaneReader::Peek() {
  // Sequentially consistent: see GangExchanges::Swap.
  const uint64_t there = lane_->written.load(std::memory_order_seq_cst) - read_;
  if (!broken_ && there == 0) return std::nullopt;
  const uint64_t at = read_ % kLaneSlots;
  // Read once, as the sender could change it.
  const volatile Slot& slot = lane_->slots[at];
  const Front front{{slot.launch, slot.round, slot.part, {}},
                    {bytes_ + at * kMaxPushBytes, slot.bytes},
                    slot.rings == lanes::kRingsForAll};
  if (broken_ || there > kLaneSlots || front.bytes.size() > kMaxPushBytes) {
    broken_ = true;
    return absl::DataLossError("a neighbour has broken the memory that it pushes to");
  }
  return front;
}

void LaneReader::Pop() { lane_->read.store(++read_, std::memory_order_release); }

bool LaneReader::TakeBack() {
  uint64_t nothing = read_;
  return lane_->written.compare_exchange_strong(nothing, lanes::kTakenBack) || broken_;
}

std::unique_ptr<SharedLanes> SharedLanes::Make() {
  auto head = lanes::File::Make(kPage);
  if (head == nullptr) return nullptr;
  return std::unique_ptr<SharedLanes>(new SharedLanes(std::move(head)));
}

std::shared_ptr<Bell> SharedLanes::bell() const {
  return {head_, &reinterpret_cast<Head*>(head_->data())->bell};
}

Bell& SharedLanes::all() const { return reinterpret_cast<Head*>(head_->data())->all; }

std::atomic<uint32_t>& SharedLanes::cpu() const {
  return reinterpret_cast<Head*>(head_->data())->cpu;
}

absl::StatusOr<std::string> SharedLanes::AddressFor(Incarnation sender) {
  auto found = lanes_.find(sender);
  if (found == lanes_.end()) {
    auto file = lanes_.size() < kMaxLanes ? lanes::File::Make(kLaneBytes) : nullptr;
    if (file == nullptr)
      return absl::ResourceExhaustedError("no lane is left for another neighbour");
    std::unique_ptr<LaneReader> reader(new LaneReader(std::move(file)));
    found = lanes_.emplace(sender, std::move(reader)).first;
  }
  const lanes::File& lane = *found->second->file_;
  const Address address{::getpid(), head_->fd(), lane.fd(), 0, head_->secret(), lane.secret()};
  return std::string(reinterpret_cast<const char*>(&address), sizeof address);
}

LaneReader* SharedLanes::LaneOf(Incarnation sender) {
  const auto found = lanes_.find(sender);
  return found == lanes_.end() ? nullptr : found->second.get();
}

void SharedLanes::TakeBack(absl::FunctionRef<bool(Incarnation, LaneReader&)> unused) {
  std::erase_if(lanes_, [&](const auto& entry) {
    return unused(entry.first, *entry.second) && entry.second->TakeBack();
  });
}

// ---- The sender's side ----

absl::StatusOr<std::unique_ptr<LaneWriter>> LaneWriter::Open(std::string_view bytes) {
  Address address;
  if (bytes.size() != sizeof address) return Unusable("its address is unreadable");
  std::memcpy(&address, bytes.data(), sizeof address);
  FAIRWAY_ASSIGN_OR_RETURN(char* const head,
                           MapTheirs(address.pid, address.head, address.head_secret, kPage));
  auto lane = MapTheirs(address.pid, address.lane, address.lane_secret, kLaneBytes);
  if (lane.ok()) return std::unique_ptr<LaneWriter>(new LaneWriter(head, *lane));
  munmap(head, kPage);
  return lane.status();
}

LaneWriter::LaneWriter(char* head, char* lane)
    : head_(reinterpret_cast<Head*>(head)),
      lane_(lane),
      written_(reinterpret_cast<Lane*>(lane)->written.load(std::memory_order_relaxed)) {
  reinterpret_cast<Lane*>(lane)->listens.store(lanes::kListens, std::memory_order_relaxed);
}

LaneWriter::~LaneWriter() {
  reinterpret_cast<Lane*>(lane_)->listens.store(0, std::memory_order_relaxed);
  munmap(head_, kPage);
  munmap(lane_, kLaneBytes);
}

bool LaneWriter::HasRoom() const {
  const auto* lane = reinterpret_cast<const Lane*>(lane_);
  return written_ - lane->read.load(std::memory_order_acquire) < kLaneSlots;
}

bool LaneWriter::Write(const PushName& name, std::string_view bytes, Rings rings) {
  auto* lane = reinterpret_cast<Lane*>(lane_);
  const uint64_t at = written_ % kLaneSlots;
  lane->slots[at] = {name.launch, name.round, name.part, static_cast<uint32_t>(bytes.size()),
                     rings == Rings::kReceiver ? 0 : lanes::kRingsForAll};
  if (!bytes.empty()) std::memcpy(lane_ + kPage + at * kMaxPushBytes, bytes.data(), bytes.size());
  uint64_t before = written_++;
  if (!lane->written.compare_exchange_strong(before, written_)) return false;
  if (rings != Rings::kAll) head_->bell.Ring();
  return true;
}

}  // namespace fairway
