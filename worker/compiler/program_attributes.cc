// SPDX-License-Identifier: Apache-2.0
#include "worker/compiler/program_attributes.h"

#include <fmt/ranges.h>

namespace fairway::mlir {
namespace {

constexpr std::string_view kCustomCall = "fairway_own_part";

// The encodings of the attributes that are read here: the first number of an entry. builtin:
// mlir/IR/BuiltinDialectBytecode.td; sdy: shardy/dialect/sdy/ir/bytecode.td; vhlo:
// stablehlo/dialect/VhloBytecode.cpp.
constexpr uint64_t kDictionary = 1, kString = 2, kSymbol = 4;
constexpr uint64_t kMeshAxis = 1, kMesh = 2, kAxisRef = 4, kDimension = 5, kSharding = 6,
                   kShardingPerValue = 7, kUnreducedSharding = 15,
                   kUnreducedPerValue = 16;  // and newer versions
constexpr uint64_t kVhloArray = 1, kVhloBoolean = 2, kVhloApiVersion = 5, kVhloDictionary = 6,
                   kVhloInteger = 9, kVhloString = 14;
constexpr uint64_t kTypedFfi = 4;  // stablehlo.CustomCallApiVersion

std::string Config(const CallNumbers& numbers) {
  std::vector<std::string> out;
  for (const auto& [name, number] : numbers) {
    out.push_back(fmt::format("{} = {} : i64", name, number));
  }
  return fmt::format("{{{}}}", fmt::join(out, ", "));
}

}  // namespace

bool Attributes::AnyUnreduced() const {
  if (sdy_ < 0) return false;
  for (uint64_t i = 0; i < module_.num_attributes(); ++i) {
    if (auto numbers = Read(i, sdy_); numbers && numbers->Number() >= kUnreducedSharding)
      return true;
  }
  return false;
}

std::string Attributes::Text(uint64_t index) const {
  auto text = Read(index, builtin_);
  if (!text) return {};
  uint64_t code = text->Number();
  if (code == kSymbol) {
    text = Read(text->Number(), builtin_);
    code = text ? text->Number() : 0;
  }
  return code == kString ? std::string(module_.String(text->Number())) : std::string();
}

std::string Attributes::VhloText(uint64_t index) const {
  auto text = Read(index, vhlo_);
  if (!text || text->Number() != kVhloString) return {};
  return std::string(module_.String(text->Number()));
}

std::optional<std::vector<std::string>> Attributes::Keys(uint64_t index) const {
  auto dictionary = Read(index, builtin_);
  if (!dictionary || dictionary->Number() != kDictionary) return std::nullopt;
  const uint64_t count = dictionary->Count();
  std::vector<std::string> out;
  for (uint64_t i = 0; i < count && dictionary->ok(); ++i) {
    out.push_back(Text(dictionary->Number()));
    dictionary->Number();
    if (out.back().empty()) return std::nullopt;
  }
  if (!dictionary->ok()) return std::nullopt;
  return out;
}

Axes Attributes::Unreduced(uint64_t index) const {
  Axes out = Axes::Whole();
  out.sharding = index;
  auto sharding = Read(index, sdy_);
  if (!sharding || sharding->Number() != kUnreducedSharding) return out;
  sharding->Number();
  for (int list = 0; list < 2; ++list) sharding->Numbers(sharding->Count());
  for (uint64_t axis : sharding->Numbers(sharding->Count())) {
    auto reference = Read(axis, sdy_);
    if (!reference || reference->Number() != kAxisRef) return {};
    const std::string name(module_.String(reference->Number()));
    const bool part = reference->Number() != 0;
    out.names.insert(part ? name + ", in part" : name);
  }
  return out;
}

std::vector<Axes> Attributes::UnreducedPerValue(uint64_t index) const {
  std::vector<Axes> out;
  auto list = Read(index, sdy_);
  if (!list) return out;
  const uint64_t code = list->Number();
  if (code != kShardingPerValue && code != kUnreducedPerValue) return out;
  for (uint64_t one : list->Numbers(list->Count())) out.push_back(Unreduced(one));
  return out;
}

std::vector<Declared> Attributes::UnreducedOfSignature(uint64_t index) const {
  std::vector<Declared> out;
  auto list = Read(index, vhlo_);
  if (!list || list->Number() != kVhloArray) return out;
  for (uint64_t one : list->Numbers(list->Count())) {
    out.emplace_back();
    auto pairs = Read(one, vhlo_);
    if (!pairs || pairs->Number() != kVhloDictionary) continue;
    for (uint64_t count = pairs->Number(); count > 0 && pairs->ok(); --count) {
      const std::string name = VhloText(pairs->Number());
      const uint64_t value = pairs->Number();
      if (name == "sdy.sharding") {
        out.back().axes = Unreduced(value);
        out.back().sharding = value;
      }
      if (name == "mhlo.memory_kind") out.back().memory_kind = VhloText(value);
    }
  }
  return out;
}

std::optional<Mesh> Attributes::MeshOf(uint64_t index) const {
  auto mesh = Read(index, sdy_);
  if (!mesh || mesh->Number() != kMesh) return std::nullopt;
  Mesh out;
  for (uint64_t axis : mesh->Numbers(mesh->Count())) {
    auto one = Read(axis, sdy_);
    if (!one || one->Number() != kMeshAxis) return std::nullopt;
    std::string name(module_.String(one->Number()));
    out.axes.emplace_back(std::move(name), one->Signed());
  }
  for (uint64_t count = mesh->Count(); count > 0 && mesh->ok(); --count) {
    out.devices.push_back(mesh->Signed());
  }
  if (!mesh->ok()) return std::nullopt;
  return out;
}

uint64_t Attributes::MeshReference(uint64_t sharding) const {
  auto numbers = Read(sharding, sdy_);
  if (numbers) numbers->Number();
  return numbers ? numbers->Number() : 0;
}

std::optional<std::vector<std::vector<std::string>>> Attributes::Cuts(uint64_t sharding) const {
  auto numbers = Read(sharding, sdy_);
  if (!numbers) return std::nullopt;
  const uint64_t code = numbers->Number();
  if (code != kSharding && code != kUnreducedSharding) return std::nullopt;
  numbers->Number();
  std::vector<std::vector<std::string>> out;
  for (uint64_t dimension : numbers->Numbers(numbers->Count())) {
    out.emplace_back();
    auto cut = Read(dimension, sdy_);
    if (!cut || cut->Number() != kDimension) return std::nullopt;
    for (uint64_t axis : cut->Numbers(cut->Count())) {
      auto reference = Read(axis, sdy_);
      if (!reference || reference->Number() != kAxisRef) return std::nullopt;
      out.back().emplace_back(module_.String(reference->Number()));
      if (reference->Number() != 0) return std::nullopt;
    }
  }
  return out;
}

std::vector<std::vector<int64_t>> Attributes::MeshSizes() const {
  std::vector<std::vector<int64_t>> out;
  for (uint64_t i = 0; i < module_.num_attributes(); ++i) {
    const std::optional<Mesh> mesh = MeshOf(i);
    if (!mesh) continue;
    out.emplace_back();
    for (const auto& [name, size] : mesh->axes) out.back().push_back(size);
  }
  return out;
}

std::optional<uint64_t> Attributes::Replicated(uint64_t results,
                                               const std::map<size_t, size_t>& ranks) {
  std::optional<uint64_t> mesh;
  for (uint64_t i = 0; i < module_.num_attributes() && !mesh; ++i) {
    if (Cuts(i)) mesh = MeshReference(i);
  }
  auto list = Read(results, vhlo_);
  if (!mesh || !list || list->Number() != kVhloArray) return std::nullopt;
  std::vector<uint64_t> all = list->Numbers(list->Count());
  for (const auto& [place, rank] : ranks) {
    if (place >= all.size()) return std::nullopt;
    auto pairs = Read(all[place], vhlo_);
    if (!pairs || pairs->Number() != kVhloDictionary) return std::nullopt;
    const uint64_t count = pairs->Count();
    std::vector<uint64_t> numbers = pairs->Numbers(2 * count);
    bool has_one = false;
    for (size_t i = 0; i < numbers.size(); i += 2) {
      has_one = has_one || VhloText(numbers[i]) == "sdy.sharding";
    }
    if (has_one || numbers.size() != 2 * count) continue;
    // No axes, closed, no priority.
    const uint64_t dimension = module_.AddAttribute({sdy_, true, std::string("\x0b\1\1\1")});
    std::vector<uint64_t> sharding = {kSharding, *mesh, rank};
    sharding.insert(sharding.end(), rank, dimension);
    sharding.push_back(0);  // explicitly replicated axes
    numbers.push_back(AddVhloText("sdy.sharding"));
    numbers.push_back(Add(sdy_, sharding));
    numbers.insert(numbers.begin(), {kVhloDictionary, count + 1});
    all[place] = Add(vhlo_, numbers);
  }
  all.insert(all.begin(), {kVhloArray, all.size()});
  return Add(vhlo_, all);
}

uint64_t Attributes::CallAttributes(uint64_t sharding, const CallNumbers& numbers, bool vhlo) {
  const auto known = calls_.find({sharding, numbers, vhlo});
  if (known != calls_.end()) return known->second;
  std::vector<std::pair<std::string_view, uint64_t>> values;
  if (vhlo) {
    const uint64_t none = Add(vhlo_, {kVhloArray, 0});
    values = {{"api_version", Add(vhlo_, {kVhloApiVersion, kTypedFfi})},
              {"backend_config", VhloConfig(numbers)},
              {"call_target_name", AddVhloText(kCustomCall)},
              {"called_computations", none},
              {"has_side_effect", Add(vhlo_, {kVhloBoolean, 0})},
              {"operand_layouts", none},
              {"output_operand_aliases", none},
              {"result_layouts", none}};
  } else {
    values = {{"api_version", AddText(fmt::format("{} : i32", kTypedFfi))},
              {"backend_config", AddText(Config(numbers))},
              {"call_target_name", AddText(fmt::format("\"{}\"", kCustomCall))}};
  }
  values.emplace_back("sdy.sharding", Add(sdy_, {kUnreducedPerValue, 1, sharding}));
  std::vector<uint64_t> pairs = {kDictionary, values.size()};
  for (const auto& [name, value] : values) {
    pairs.push_back(AddText(fmt::format("\"{}\"", name)));
    pairs.push_back(value);
  }
  return calls_[{sharding, numbers, vhlo}] = Add(builtin_, pairs);
}

std::optional<Cursor> Attributes::Read(uint64_t index, int dialect) const {
  const Entry* entry = module_.Attribute(index);
  if (entry == nullptr || entry->dialect != dialect || !entry->custom) return std::nullopt;
  return Cursor(entry->bytes);
}

uint64_t Attributes::Add(int dialect, const std::vector<uint64_t>& numbers) {
  std::string bytes;
  for (uint64_t number : numbers) AppendNumber(bytes, number);
  return module_.AddAttribute({dialect, true, bytes});
}

uint64_t Attributes::AddText(const std::string& text) {
  return module_.AddAttribute({builtin_, false, text + '\0'});
}

uint64_t Attributes::AddVhloText(std::string_view text) {
  return Add(vhlo_, {kVhloString, module_.AddString(text)});
}

uint64_t Attributes::VhloConfig(const CallNumbers& numbers) {
  const uint64_t type = module_.AddType({vhlo_, false, std::string("!vhlo.i64_v1") + '\0'});
  std::vector<uint64_t> out = {kVhloDictionary, numbers.size()};
  for (const auto& [name, number] : numbers) {
    out.push_back(AddVhloText(name));
    const auto bits = static_cast<uint64_t>(number);
    const uint64_t zigzag = bits << 1 ^ (number < 0 ? ~uint64_t{0} : 0);
    out.push_back(Add(vhlo_, {kVhloInteger, type, zigzag}));
  }
  return Add(vhlo_, out);
}

}  // namespace fairway::mlir
