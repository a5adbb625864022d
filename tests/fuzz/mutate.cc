// SPDX-License-Identifier: Apache-2.0
// The mutations of inputs: whole records, fields of messages by protobuf reflection (also within
// bytes that hold a message whose type a field beside them names), and plain bytes by libFuzzer's
// own means. Flipped bytes alone would seldom pass a parser.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include "tests/fuzz/fuzz.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace fairway::fuzz {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using Random = std::minstd_rand;

constexpr int kDeepest = 12;
constexpr int kMostMutations = 4;

// A random number from 0 to n - 1.
size_t Pick(Random& random, size_t n) { return n == 0 ? 0 : random() % n; }
bool Often(Random& random) { return Pick(random, 4) != 0; }

void MutateBytes(std::string& bytes, size_t limit) {
  const size_t size = std::min(bytes.size(), limit);
  bytes.resize(std::max<size_t>(2 * size + 16, 16));
  bytes.resize(LLVMFuzzerMutate(reinterpret_cast<uint8_t*>(bytes.data()), size,
                                std::min(bytes.size(), limit)));
}

// A number near a boundary, near the old one, or any number.
uint64_t Number(Random& random, uint64_t old) {
  static constexpr int64_t kInteresting[] = {0,
                                             1,
                                             2,
                                             3,
                                             4,
                                             7,
                                             8,
                                             15,
                                             16,
                                             63,
                                             64,
                                             127,
                                             128,
                                             255,
                                             256,
                                             4096,
                                             65535,
                                             65536,
                                             -1,
                                             -2,
                                             100,
                                             99,
                                             1000,
                                             1024,
                                             77,
                                             1LL << 20,
                                             1LL << 30,
                                             (1LL << 31) - 1,
                                             1LL << 31,
                                             (1LL << 32) - 1,
                                             1LL << 32,
                                             1LL << 40,
                                             1LL << 60,
                                             (1LL << 60) + 1,
                                             1LL << 61,
                                             1LL << 62,
                                             std::numeric_limits<int32_t>::min(),
                                             std::numeric_limits<int64_t>::max(),
                                             std::numeric_limits<int64_t>::min(),
                                             std::numeric_limits<int64_t>::min() + 1};
  switch (Pick(random, 6)) {
    case 0:
      return old + 1;
    case 1:
      return old - 1;
    case 2:
      return Pick(random, 8);
    case 3:
      return old ^ (uint64_t{1} << Pick(random, 64));
    case 4:
      return uint64_t{0} - old;
    default:
      return static_cast<uint64_t>(kInteresting[Pick(random, std::size(kInteresting))]);
  }
}

void MutateMessage(Message& message, Random& random, int depth);

// For a message like {type_name: "xla::ifrt::HloSharding", data}, an envelope: the prototype of the
// message in `data`.
const Message* InEnvelope(const Message& message) {
  const auto* name = message.GetDescriptor()->FindFieldByName("type_name");
  if (name == nullptr) return nullptr;
  std::string type = message.GetReflection()->GetString(message, name);
  for (size_t at = 0; (at = type.find("::")) != std::string::npos;) type.replace(at, 2, ".");
  const auto* found =
      google::protobuf::DescriptorPool::generated_pool()->FindMessageTypeByName(type + "Proto");
  return found == nullptr
             ? nullptr
             : google::protobuf::MessageFactory::generated_factory()->GetPrototype(found);
}

void MutateText(Message& message, const FieldDescriptor* field, Random& random, int depth,
                std::string& value) {
  const Message* inside = field->name() == "data" ? InEnvelope(message) : nullptr;
  if (inside != nullptr && Often(random)) {
    std::unique_ptr<Message> parsed(inside->New());
    if (parsed->ParsePartialFromString(value)) {
      MutateMessage(*parsed, random, depth + 1);
      value = parsed->SerializePartialAsString();
      return;
    }
  }
  MutateBytes(value, kMaxPayload);
  if (field->type() == FieldDescriptor::TYPE_STRING && Often(random)) {
    for (char& c : value) c &= 0x7f;  // otherwise the whole message would not parse
  }
}

// Mutates one value of a field, singular (index -1) or repeated; reflection needs a case per type.
void MutateValue(Message& message, const FieldDescriptor* field, int index, Random& random,
                 int depth) {
  const Reflection* r = message.GetReflection();
  const bool one = index >= 0;
  switch (field->cpp_type()) {
#define FAIRWAY_NUMBER(KIND, Name, Type)                                                     \
  case FieldDescriptor::CPPTYPE_##KIND: {                                                    \
    const auto old = static_cast<uint64_t>(one ? r->GetRepeated##Name(message, field, index) \
                                               : r->Get##Name(message, field));              \
    const auto value = static_cast<Type>(Number(random, old));                               \
    one ? r->SetRepeated##Name(&message, field, index, value)                                \
        : r->Set##Name(&message, field, value);                                              \
    return;                                                                                  \
  }
    FAIRWAY_NUMBER(INT32, Int32, int32_t)
    FAIRWAY_NUMBER(INT64, Int64, int64_t)
    FAIRWAY_NUMBER(UINT32, UInt32, uint32_t)
    FAIRWAY_NUMBER(UINT64, UInt64, uint64_t)
    FAIRWAY_NUMBER(BOOL, Bool, bool)
#undef FAIRWAY_NUMBER
    case FieldDescriptor::CPPTYPE_DOUBLE: {
      const auto value = static_cast<double>(static_cast<int64_t>(Number(random, 1)));
      one ? r->SetRepeatedDouble(&message, field, index, value)
          : r->SetDouble(&message, field, value);
      return;
    }
    case FieldDescriptor::CPPTYPE_FLOAT: {
      const auto value = static_cast<float>(static_cast<int64_t>(Number(random, 1)));
      one ? r->SetRepeatedFloat(&message, field, index, value)
          : r->SetFloat(&message, field, value);
      return;
    }
    case FieldDescriptor::CPPTYPE_ENUM: {
      const auto* type = field->enum_type();
      const int value =
          Often(random) ? type->value(static_cast<int>(Pick(random, type->value_count())))->number()
                        : static_cast<int>(Number(random, 0));
      one ? r->SetRepeatedEnumValue(&message, field, index, value)
          : r->SetEnumValue(&message, field, value);
      return;
    }
    case FieldDescriptor::CPPTYPE_STRING: {
      std::string value =
          one ? r->GetRepeatedString(message, field, index) : r->GetString(message, field);
      MutateText(message, field, random, depth, value);
      one ? r->SetRepeatedString(&message, field, index, value)
          : r->SetString(&message, field, value);
      return;
    }
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return MutateMessage(one ? *r->MutableRepeatedMessage(&message, field, index)
                               : *r->MutableMessage(&message, field),
                           random, depth + 1);
  }
}

void AddElement(Message& message, const FieldDescriptor* field) {
  const Reflection* r = message.GetReflection();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return r->AddInt32(&message, field, 0);
    case FieldDescriptor::CPPTYPE_INT64:
      return r->AddInt64(&message, field, 0);
    case FieldDescriptor::CPPTYPE_UINT32:
      return r->AddUInt32(&message, field, 0);
    case FieldDescriptor::CPPTYPE_UINT64:
      return r->AddUInt64(&message, field, 0);
    case FieldDescriptor::CPPTYPE_BOOL:
      return r->AddBool(&message, field, false);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return r->AddDouble(&message, field, 0);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return r->AddFloat(&message, field, 0);
    case FieldDescriptor::CPPTYPE_ENUM:
      return r->AddEnumValue(&message, field, 0);
    case FieldDescriptor::CPPTYPE_STRING:
      return r->AddString(&message, field, "");
    case FieldDescriptor::CPPTYPE_MESSAGE:
      r->AddMessage(&message, field);
      return;
  }
}

void MutateRepeated(Message& message, const FieldDescriptor* field, Random& random, int depth) {
  const Reflection* r = message.GetReflection();
  const int size = r->FieldSize(message, field);
  const int index = size - 1 - static_cast<int>(Pick(random, size));
  switch (size == 0 ? 0 : Pick(random, 6)) {
    case 0:
      AddElement(message, field);
      return MutateValue(message, field, size, random, depth);
    case 1:
      r->SwapElements(&message, field, index, size - 1);
      return r->RemoveLast(&message, field);
    case 2:
      return r->SwapElements(&message, field, index, static_cast<int>(Pick(random, size)));
    default:
      return MutateValue(message, field, index, random, depth);
  }
}

void MutateMessage(Message& message, Random& random, int depth) {
  const Reflection* r = message.GetReflection();
  const auto* type = message.GetDescriptor();
  if (depth > kDeepest || type->field_count() == 0) return;
  std::vector<const FieldDescriptor*> set;
  r->ListFields(message, &set);
  const FieldDescriptor* field =
      !set.empty() && Often(random)
          ? set[Pick(random, set.size())]
          : type->field(static_cast<int>(Pick(random, type->field_count())));
  if (field->is_repeated()) return MutateRepeated(message, field, random, depth);
  if (field->has_presence() && r->HasField(message, field) && Pick(random, 12) == 0)
    return r->ClearField(&message, field);
  MutateValue(message, field, -1, random, depth);
}

void MutateRecord(Record& record, Random& random) {
  const Message* prototype = Prototype(record.kind);
  if (prototype != nullptr && Pick(random, 10) != 0) {
    std::unique_ptr<Message> message(prototype->New());
    if (message->ParsePartialFromString(record.payload)) {
      for (size_t n = 1 + Pick(random, kMostMutations); n > 0; --n)
        MutateMessage(*message, random, 0);
      record.payload = message->SerializePartialAsString();
      return;
    }
  }
  MutateBytes(record.payload, kMaxPayload);
}

void MutateList(std::vector<Record>& records, Random& random) {
  const size_t at = Pick(random, records.size());
  switch (Pick(random, 12)) {
    case 0:
      records.insert(records.begin() + Pick(random, records.size() + 1), Record(records[at]));
      return;
    case 1:
      records.erase(records.begin() + at);
      return;
    case 2:
      std::swap(records[at], records[Pick(random, records.size())]);
      return;
    case 3:
      records[at].kind = static_cast<uint8_t>(Pick(random, 16));
      return;
    default:
      return MutateRecord(records[at], random);
  }
}

size_t Emit(const std::string& input, uint8_t* data, size_t max_size) {
  const size_t size = std::min(input.size(), max_size);
  std::memcpy(data, input.data(), size);
  return size;
}

}  // namespace
}  // namespace fairway::fuzz

using namespace fairway::fuzz;

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned int seed) {
  Random random(seed);
  std::vector<Record> records = Cut({reinterpret_cast<const char*>(data), size});
  if (records.empty() || Pick(random, 16) == 0) return LLVMFuzzerMutate(data, size, max_size);
  MutateList(records, random);
  return Emit(Join(records), data, max_size);
}

extern "C" size_t LLVMFuzzerCustomCrossOver(const uint8_t* data1, size_t size1,
                                            const uint8_t* data2, size_t size2, uint8_t* out,
                                            size_t max_size, unsigned int seed) {
  Random random(seed);
  std::vector<Record> records = Cut({reinterpret_cast<const char*>(data1), size1});
  const std::vector<Record> others = Cut({reinterpret_cast<const char*>(data2), size2});
  if (others.empty()) return 0;
  const size_t first = Pick(random, others.size());
  const size_t count = 1 + Pick(random, others.size() - first);
  records.insert(records.begin() + Pick(random, records.size() + 1), others.begin() + first,
                 others.begin() + first + count);
  return Emit(Join(records), out, max_size);
}
