// SPDX-License-Identifier: Apache-2.0
#include "worker/compiler/mlir_bytecode.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace fairway::mlir {
namespace {

constexpr std::string_view kMagic = "ML\xefR";
constexpr uint64_t kOldest = 4, kNewest = 6;
constexpr uint64_t kNativeProperties =
    5;  // from this version on operations say whether they are registered
enum SectionId : uint8_t {
  kStrings = 0,
  kDialects = 1,
  kEntries = 2,
  kEntryOffsets = 3,
  kDialectVersions = 7,
  kProperties = 8,
};
constexpr uint8_t kAligned = 0x80;
constexpr char kPadding = '\xcb';

absl::Status Broken(std::string_view what) {
  return InvalidArgument("MLIR bytecode: unreadable {}", what);
}

}  // namespace

bool Cursor::Have(uint64_t count) {
  if (ok_ && count <= bytes_.size() - position_) return true;
  ok_ = false;
  return false;
}

uint8_t Cursor::Byte() { return Have(1) ? static_cast<uint8_t>(bytes_[position_++]) : 0; }

// The lowest bits of the first byte count the bytes after it.
uint64_t Cursor::Number() {
  const uint8_t first = Byte();
  const int more = first == 0 ? 8 : std::countr_zero(first);
  if (!Have(more)) return 0;
  uint64_t number = first == 0 ? 0 : first;
  for (int i = 0; i < more; ++i) {
    const uint64_t byte = Byte();
    number |= first == 0 ? byte << (8 * i) : byte << (8 * (i + 1));
  }
  return first == 0 ? number : number >> (more + 1);
}

int64_t Cursor::Signed() {
  const uint64_t number = Number();
  return static_cast<int64_t>(number >> 1) ^ -static_cast<int64_t>(number & 1);
}

uint64_t Cursor::NumberWithFlag(bool& flag) {
  const uint64_t number = Number();
  flag = (number & 1) != 0;
  return number >> 1;
}

std::string_view Cursor::Bytes(uint64_t count) {
  if (!Have(count)) return {};
  position_ += count;
  return bytes_.substr(position_ - count, count);
}

uint64_t Cursor::Count() {
  const uint64_t count = Number();
  return Have(count) ? count : 0;
}

std::vector<uint64_t> Cursor::Numbers(uint64_t count) {
  std::vector<uint64_t> out;
  for (uint64_t i = 0; i < count && ok_; ++i) out.push_back(Number());
  return out;
}

void AppendNumber(std::string& out, uint64_t number) {
  const int bits = std::max(1, static_cast<int>(std::bit_width(number)));
  const int bytes = (bits + 6) / 7;
  if (bytes > 8) {
    out.push_back(0);
    for (int i = 0; i < 8; ++i) out.push_back(static_cast<char>(number >> (8 * i)));
    return;
  }
  const uint64_t shifted = (number << 1 | 1) << (bytes - 1);
  for (int i = 0; i < bytes; ++i) out.push_back(static_cast<char>(shifted >> (8 * i)));
}

void AppendSection(std::string& out, uint8_t id, std::string_view data) {
  out.push_back(static_cast<char>(id));
  AppendNumber(out, data.size());
  out += data;
}

absl::StatusOr<Module> Module::Read(std::string_view bytes) {
  Module out;
  Cursor cursor(bytes);
  if (cursor.Bytes(kMagic.size()) != kMagic) return InvalidArgument("no MLIR bytecode");
  out.version_ = cursor.Number();
  if (!cursor.ok() || out.version_ < kOldest || out.version_ > kNewest) {
    return InvalidArgument("MLIR bytecode of version {}, known are {} to {}", out.version_, kOldest,
                           kNewest);
  }
  while (cursor.ok() && cursor.Byte() != 0) {  // the producer
  }
  out.header_ = bytes.substr(0, cursor.position());
  std::string_view found[256] = {};
  while (cursor.ok() && !cursor.at_end()) {
    Section section;
    const uint8_t id = cursor.Byte();
    section.id = id & ~kAligned;
    const uint64_t length = cursor.Number();
    if ((id & kAligned) != 0) {
      section.alignment = cursor.Number();
      if (!std::has_single_bit(section.alignment)) return Broken("alignment");
      while (cursor.ok() && cursor.position() % section.alignment != 0) cursor.Byte();
    }
    section.data = cursor.Bytes(length);
    found[section.id] = section.data;
    out.sections_.push_back(section);
  }
  if (!cursor.ok()) return Broken("sections");
  out.ir_ = found[kIrSection];
  FAIRWAY_RETURN_IF_ERROR(out.ReadStrings(found[kStrings]));
  FAIRWAY_RETURN_IF_ERROR(out.ReadDialects(found[kDialects]));
  FAIRWAY_RETURN_IF_ERROR(out.ReadEntries(found[kEntryOffsets], found[kEntries]));
  Cursor properties(found[kProperties]);
  for (uint64_t i = properties.at_end() ? 0 : properties.Count(); i > 0 && properties.ok(); --i) {
    out.properties_.push_back(properties.Bytes(properties.Number()));
  }
  if (!properties.ok()) return Broken("properties");
  return out;
}

// Layout: a count, the lengths from the last to the first, the bytes; each string ends with a 0.
absl::Status Module::ReadStrings(std::string_view data) {
  Cursor cursor(data);
  std::vector<uint64_t> lengths = cursor.Numbers(cursor.Count());
  for (auto length = lengths.rbegin(); length != lengths.rend(); ++length) {
    const std::string_view text = cursor.Bytes(*length);
    if (text.empty() || text.back() != 0) return Broken("strings");
    strings_.emplace_back(text.substr(0, text.size() - 1));
  }
  return cursor.ok() ? absl::OkStatus() : Broken("strings");
}

absl::Status Module::ReadDialects(std::string_view data) {
  Cursor cursor(data);
  old_dialects_ = cursor.Count();
  const size_t begin = cursor.position();
  for (uint64_t i = 0; i < old_dialects_ && cursor.ok(); ++i) {
    bool versioned = false;
    dialects_.push_back(cursor.NumberWithFlag(versioned));
    if (!versioned) continue;
    if (cursor.Byte() != kDialectVersions) return Broken("dialect's version");
    cursor.Bytes(cursor.Number());
  }
  dialect_entries_ = data.substr(begin, cursor.position() - begin);
  const uint64_t operations = cursor.Number();
  while (cursor.ok() && !cursor.at_end()) {
    const uint64_t dialect = cursor.Number();
    if (dialect >= old_dialects_) return Broken("operation's dialect");
    for (uint64_t i = cursor.Count(); i > 0 && cursor.ok(); --i) {
      bool registered = true;
      const uint64_t name =
          version_ >= kNativeProperties ? cursor.NumberWithFlag(registered) : cursor.Number();
      operations_.push_back({static_cast<int>(dialect), name, registered});
    }
  }
  if (!cursor.ok() || operations_.size() != operations) return Broken("dialects");
  return absl::OkStatus();
}

absl::Status Module::ReadEntries(std::string_view offsets, std::string_view data) {
  Cursor cursor(offsets), content(data);
  const uint64_t attributes = cursor.Count(), types = cursor.Count();
  while (cursor.ok() && attributes_.size() + types_.size() < attributes + types) {
    const uint64_t dialect = cursor.Number();
    if (dialect >= old_dialects_) return Broken("dialect of an attribute");
    for (uint64_t i = cursor.Count(); i > 0 && cursor.ok(); --i) {
      Entry entry;
      entry.dialect = static_cast<int>(dialect);
      entry.bytes = content.Bytes(cursor.NumberWithFlag(entry.custom));
      (attributes_.size() < attributes ? attributes_ : types_).push_back(std::move(entry));
    }
  }
  if (!cursor.ok() || !content.ok() || types_.size() != types) return Broken("attributes");
  return absl::OkStatus();
}

std::string_view Module::String(uint64_t index) const {
  return index < strings_.size() ? std::string_view(strings_[index]) : std::string_view();
}

bool Module::HasString(std::string_view text) const {
  return std::ranges::find(strings_, text) != strings_.end();
}

const Entry* Module::Attribute(uint64_t index) const {
  return index < attributes_.size() ? &attributes_[index] : nullptr;
}

std::string_view Module::Properties(uint64_t index) const {
  return index < properties_.size() ? properties_[index] : std::string_view();
}

OpName Module::Name(uint64_t index) const {
  if (index >= operations_.size()) return {-1, {}};
  return {operations_[index].dialect, String(operations_[index].name)};
}

std::string_view Module::DialectName(int dialect) const {
  if (dialect < 0 || static_cast<size_t>(dialect) >= dialects_.size()) return {};
  return String(dialects_[dialect]);
}

int Module::Dialect(std::string_view name) const {
  for (size_t i = 0; i < dialects_.size(); ++i) {
    if (String(dialects_[i]) == name) return static_cast<int>(i);
  }
  return -1;
}

uint64_t Module::AddString(std::string_view text) {
  strings_.emplace_back(text);
  return strings_.size() - 1;
}

int Module::AddDialect(std::string_view name) {
  dialects_.push_back(AddString(name));
  return static_cast<int>(dialects_.size()) - 1;
}

uint64_t Module::AddOperation(int dialect, std::string_view name) {
  operations_.push_back({dialect, AddString(name), /*registered=*/true});
  return operations_.size() - 1;
}

void Module::RenameOperation(uint64_t index, std::string_view name) {
  operations_[index].name = AddString(name);
}

uint64_t Module::AddAttribute(Entry entry) {
  attributes_.push_back(std::move(entry));
  return attributes_.size() - 1;
}

uint64_t Module::AddType(Entry entry) {
  types_.push_back(std::move(entry));
  return types_.size() - 1;
}

uint64_t Module::AddProperties(std::string bytes) {
  properties_.push_back(added_properties_.emplace_back(std::move(bytes)));
  return properties_.size() - 1;
}

std::string Module::PropertySection() const {
  std::string out;
  AppendNumber(out, properties_.size());
  for (std::string_view properties : properties_) {
    AppendNumber(out, properties.size());
    out += properties;
  }
  return out;
}

std::string Module::StringSection() const {
  std::string out;
  AppendNumber(out, strings_.size());
  for (auto text = strings_.rbegin(); text != strings_.rend(); ++text) {
    AppendNumber(out, text->size() + 1);
  }
  for (const std::string& text : strings_) out.append(text.c_str(), text.size() + 1);
  return out;
}

std::string Module::DialectSection() const {
  std::string out;
  AppendNumber(out, dialects_.size());
  out += dialect_entries_;
  for (size_t i = old_dialects_; i < dialects_.size(); ++i) {
    AppendWithFlag(out, dialects_[i], false);
  }
  AppendNumber(out, operations_.size());
  for (size_t begin = 0, end = 0; begin < operations_.size(); begin = end) {
    const int dialect = operations_[begin].dialect;
    while (end < operations_.size() && operations_[end].dialect == dialect) ++end;
    AppendNumber(out, static_cast<uint64_t>(dialect));
    AppendNumber(out, end - begin);
    for (size_t i = begin; i < end; ++i) {
      if (version_ >= kNativeProperties) {
        AppendWithFlag(out, operations_[i].name, operations_[i].registered);
      } else {
        AppendNumber(out, operations_[i].name);
      }
    }
  }
  return out;
}

std::pair<std::string, std::string> Module::EntrySections() const {
  std::string offsets, data;
  AppendNumber(offsets, attributes_.size());
  AppendNumber(offsets, types_.size());
  for (const std::vector<Entry>* entries : {&attributes_, &types_}) {
    for (size_t begin = 0, end = 0; begin < entries->size(); begin = end) {
      const int dialect = (*entries)[begin].dialect;
      while (end < entries->size() && (*entries)[end].dialect == dialect) ++end;
      AppendNumber(offsets, static_cast<uint64_t>(dialect));
      AppendNumber(offsets, end - begin);
      for (size_t i = begin; i < end; ++i) {
        AppendWithFlag(offsets, (*entries)[i].bytes.size(), (*entries)[i].custom);
        data += (*entries)[i].bytes;
      }
    }
  }
  return {offsets, data};
}

std::string Module::Write(std::string_view ir) const {
  const auto [offsets, entries] = EntrySections();
  const std::string strings = StringSection(), dialects = DialectSection();
  const std::string properties = PropertySection();
  std::string out(header_);
  for (const Section& section : sections_) {
    std::string_view data = section.data;
    if (section.id == kStrings) data = strings;
    if (section.id == kDialects) data = dialects;
    if (section.id == kEntries) data = entries;
    if (section.id == kEntryOffsets) data = offsets;
    if (section.id == kProperties && !added_properties_.empty()) data = properties;
    if (section.id == kIrSection) data = ir;
    if (section.alignment == 1) {
      AppendSection(out, section.id, data);
      continue;
    }
    out.push_back(static_cast<char>(section.id | kAligned));
    AppendNumber(out, data.size());
    AppendNumber(out, section.alignment);
    while (out.size() % section.alignment != 0) out.push_back(kPadding);
    out += data;
  }
  return out;
}

namespace {

// The bits of an operation's mask: which parts follow.
constexpr uint8_t kHasAttributes = 1, kHasResults = 2, kHasOperands = 4, kHasSuccessors = 8,
                  kHasRegions = 16, kHasUseOrders = 32, kHasProperties = 64;
constexpr int kDeepest = 200;

class Walker {
 public:
  Walker(const Module& module, const std::function<absl::Status(const WrittenOperation&)>& visit)
      : module_(module), visit_(visit) {}

  absl::Status Walk() {
    Cursor cursor(module_.ir());
    Block(cursor, 0);
    if (status_.ok() && !(cursor.ok() && cursor.at_end())) status_ = Broken("operations");
    return status_;
  }

 private:
  static void SkipOrders(Cursor& cursor, uint64_t values) {
    const uint64_t lists = values > 1 ? cursor.Count() : 1;
    for (uint64_t i = 0; i < lists && cursor.ok(); ++i) {
      if (values > 1) cursor.Number();
      bool pairs = false;
      const uint64_t count = cursor.NumberWithFlag(pairs);
      for (uint64_t k = 0; k < count && cursor.ok(); ++k) cursor.Number();
    }
  }

  static uint64_t SkipList(Cursor& cursor) {
    const uint64_t count = cursor.Count();
    for (uint64_t i = 0; i < count && cursor.ok(); ++i) cursor.Number();
    return count;
  }

  void Block(Cursor& cursor, int depth) {
    bool has_arguments = false;
    const uint64_t operations = cursor.NumberWithFlag(has_arguments);
    if (has_arguments) {
      const uint64_t count = cursor.Count();
      for (uint64_t i = 0; i < count && cursor.ok(); ++i) {
        bool located = false;
        cursor.NumberWithFlag(located);
        if (located) cursor.Number();
      }
      if (cursor.Byte() != 0) SkipOrders(cursor, count);
    }
    for (uint64_t i = 0; i < operations && cursor.ok() && status_.ok(); ++i) One(cursor, depth);
  }

  void One(Cursor& cursor, int depth) {
    WrittenOperation op;
    const OpName name = module_.Name(cursor.Number());
    op.dialect = module_.DialectName(name.dialect);
    op.name = name.name;
    const uint8_t mask = cursor.Byte();
    cursor.Number();  // the location
    if (mask & kHasAttributes) op.attributes = cursor.Number();
    if (mask & kHasProperties) op.properties = cursor.Number();
    const uint64_t results = mask & kHasResults ? SkipList(cursor) : 0;
    if (mask & kHasOperands) SkipList(cursor);
    if (mask & kHasSuccessors) SkipList(cursor);
    if (mask & kHasUseOrders) SkipOrders(cursor, results);
    if (!cursor.ok()) return;
    status_ = visit_(op);
    if ((mask & kHasRegions) && status_.ok()) Regions(cursor, depth + 1);
  }

  void Regions(Cursor& cursor, int depth) {
    if (depth > kDeepest) {
      status_ = Broken("operations: regions are nested too deep");
      return;
    }
    bool isolated = false;
    const uint64_t count = cursor.NumberWithFlag(isolated);
    for (uint64_t i = 0; i < count && cursor.ok() && status_.ok(); ++i) {
      if (!isolated) {
        Region(cursor, depth);
        continue;
      }
      const bool section = cursor.Byte() == kIrSection;
      Cursor inner(cursor.Bytes(cursor.Number()));
      Region(inner, depth);
      if (status_.ok() && !(section && inner.ok() && inner.at_end())) status_ = Broken("region");
    }
  }

  void Region(Cursor& cursor, int depth) {
    const uint64_t blocks = cursor.Count();
    if (blocks > 0) cursor.Count();  // of values
    for (uint64_t i = 0; i < blocks && cursor.ok() && status_.ok(); ++i) Block(cursor, depth);
  }

  const Module& module_;
  const std::function<absl::Status(const WrittenOperation&)>& visit_;
  absl::Status status_;
};

}  // namespace

absl::Status ForEachOperation(const Module& module,
                              const std::function<absl::Status(const WrittenOperation&)>& visit) {
  return Walker(module, visit).Walk();
}

}  // namespace fairway::mlir
