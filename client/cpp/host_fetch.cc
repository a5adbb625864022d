// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/host_fetch.h"

#include <cstring>
#include <new>
#include <set>
#include <utility>

#include "client/cpp/access.h"

namespace fairway::client {

absl::StatusOr<std::vector<Tile>> TilesOf(const ::fairway::ArraySpec& spec) {
  std::vector<Tile> out;
  std::set<std::vector<int64_t>> seen;  // the tiles' origins
  const int64_t element = ::fairway::BytesPerElement(spec.dtype);
  for (int i = 0; i < spec.sharding.num_shards(); ++i) {
    FAIRWAY_ASSIGN_OR_RETURN(const IndexDomain domain, spec.sharding.Domain(spec.shape, i));
    Tile tile{i, {element, spec.shape.dims, domain.origin, domain.shape.dims}};
    FAIRWAY_RETURN_IF_ERROR(CheckBox(tile.box));
    if (seen.insert(domain.origin).second) out.push_back(std::move(tile));
  }
  return out;
}

absl::StatusOr<std::unique_ptr<HostFetch>> HostFetch::Make(const ArraySpec& spec) {
  FAIRWAY_ASSIGN_OR_RETURN(const ::fairway::ArraySpec core, ToCore(spec));
  FAIRWAY_ASSIGN_OR_RETURN(const int64_t size, ByteSize(core.dtype, core.shape));
  FAIRWAY_ASSIGN_OR_RETURN(std::vector<Tile> tiles, TilesOf(core));
  auto fetch = std::make_unique<HostFetch>();
  fetch->spec_ = spec;
  fetch->size_ = static_cast<size_t>(size);
  fetch->whole_.reset(new (std::nothrow) std::byte[fetch->size_]);
  if (fetch->whole_ == nullptr)
    return ::fairway::Error(absl::StatusCode::kResourceExhausted, "no memory for {} bytes of {}",
                            size, ToString(spec));
  for (Tile& tile : tiles) {
    Part part;
    part.tile = std::move(tile);
    part.size = static_cast<size_t>(part.tile.box.bytes());
    if (part.size < fetch->size_) part.bytes.resize(part.size);
    fetch->parts_.push_back(std::move(part));
  }
  fetch->open_ = fetch->parts_.size();
  return fetch;
}

void HostFetch::Name(v1::Fetch* fetch) const {
  for (const Part& part : parts_) fetch->add_shards(part.tile.shard);
}

Result<bool> HostFetch::Take(const v1::Fetched& piece) {
  const auto wrong = [](const char* what) {
    return Status(StatusCode::kInternal, std::string("the controller sent ") + what);
  };
  if (piece.index() < 0 || piece.index() >= static_cast<int>(parts_.size()))
    return wrong("bytes of a shard that was not asked for");
  Part& part = parts_[static_cast<size_t>(piece.index())];
  const std::string& data = piece.data();
  if (piece.size() != static_cast<int64_t>(part.size) || data.size() > part.size - part.come ||
      part.complete)
    return wrong("another number of bytes than a shard has");
  char* const whole = reinterpret_cast<char*>(whole_.get());
  char* const target = part.bytes.empty() ? whole : part.bytes.data();
  if (!data.empty()) std::memcpy(target + part.come, data.data(), data.size());
  part.come += data.size();
  if (part.come < part.size) return false;
  part.complete = true;
  if (!part.bytes.empty()) {
    CopyBox(part.tile.box.Alone(), part.bytes.data(), part.tile.box, whole);
    std::vector<char>().swap(part.bytes);
  }
  return --open_ == 0;
}

HostArray HostFetch::Array() const { return {spec_.dtype, spec_.shape, whole_, size_}; }

}  // namespace fairway::client
