// SPDX-License-Identifier: Apache-2.0
#include "controller/sessions/handle_lists.h"

#include <vector>

namespace fairway {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

absl::Status Check(const Message& message) {
  const auto* reflection = message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection->ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->is_repeated()) {
      if (field->cpp_type() == FieldDescriptor::CPPTYPE_UINT64 &&
          reflection->FieldSize(message, field) > kMostHandles)
        return InvalidArgument("{} names {} handles; at most {} are served in one request",
                               field->full_name(), reflection->FieldSize(message, field),
                               kMostHandles);
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      FAIRWAY_RETURN_IF_ERROR(Check(reflection->GetMessage(message, field)));
    }
  }
  return absl::OkStatus();
}

}  // namespace

size_t KnownSize(const Message& message) {
  const int known = message.GetCachedSize();
  return known != 0 ? static_cast<size_t>(known) : message.ByteSizeLong();
}

absl::Status CheckHandleLists(const Message& request) {
  // A handle takes a byte at least, so most requests need no closer look.
  return KnownSize(request) > kMostHandles ? Check(request) : absl::OkStatus();
}

}  // namespace fairway
