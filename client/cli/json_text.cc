// SPDX-License-Identifier: Apache-2.0
#include "client/cli/json_text.h"

#include <algorithm>
#include <array>
#include <string_view>

#include <fmt/format.h>
#include <google/protobuf/descriptor.h>

namespace fairway {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// Words that some version of YAML reads as something else than a string, in any case.
bool IsReserved(std::string_view word) {
  static constexpr std::array kReserved = {"y",    "n",     "yes", "no",  "on",
                                           "true", "false", "off", "null"};
  return std::ranges::any_of(kReserved, [&](std::string_view reserved) {
    return std::ranges::equal(
        word, reserved, [](char a, char b) { return (a >= 'A' && a <= 'Z' ? a + 32 : a) == b; });
  });
}

bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// Whether the text needs no quotes: it begins with a letter, so it is no number, and has nothing
// that means something to YAML.
bool IsPlain(std::string_view text) {
  if (text.empty() || !IsLetter(text[0]) || IsReserved(text)) return false;
  return std::ranges::all_of(text, [](char c) {
    return IsLetter(c) || (c >= '0' && c <= '9') ||
           std::string_view("_-./").find(c) != std::string_view::npos;
  });
}

// A string of JSON is one of YAML, but for characters that YAML does not print and JSON does: DEL,
// U+0080 to U+009F, U+2028, U+2029 and U+FEFF.
std::string Quoted(const Json& value) {
  const std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = [&](size_t at) {
      return at < text.size() ? static_cast<unsigned char>(text[at]) : 0U;
    };
    if (byte(i) == 0x7f) {
      out += "\\u007f";
    } else if (byte(i) == 0xc2 && byte(i + 1) < 0xa0) {
      out += fmt::format("\\u{:04x}", byte(++i));
    } else if (byte(i) == 0xe2 && byte(i + 1) == 0x80 && (byte(i + 2) | 1) == 0xa9) {
      out += fmt::format("\\u20{:02x}", byte(i + 2) - 0x80);
      i += 2;
    } else if (byte(i) == 0xef && byte(i + 1) == 0xbb && byte(i + 2) == 0xbf) {
      out += "\\ufeff";
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

std::string Scalar(const Json& value) {
  if (!value.is_string()) return value.dump();
  const auto& text = value.get_ref<const std::string&>();
  return IsPlain(text) ? text : Quoted(value);
}

bool IsBlock(const Json& value) { return value.is_structured() && !value.empty(); }

// Appends a list or an object that is not empty. The first line has its indent already.
void AppendBlock(const Json& value, int indent, std::string& out) {
  bool first = true;
  const auto begin_line = [&] {
    if (!first) out.append(indent, ' ');
    first = false;
  };
  for (const auto& [key, element] : value.items()) {
    begin_line();
    if (value.is_array()) {
      out += "- ";
      if (IsBlock(element)) {
        AppendBlock(element, indent + 2, out);
      } else {
        out += Scalar(element) + "\n";
      }
      continue;
    }
    out += Scalar(Json(key)) + ":";
    if (IsBlock(element)) {
      out += "\n" + std::string(indent + 2, ' ');
      AppendBlock(element, indent + 2, out);
    } else {
      out += " " + Scalar(element) + "\n";
    }
  }
}

}  // namespace

// protobuf's own JSON writes 64-bit numbers as strings, which every reader would have to convert.
Json ToJson(const Message& message) {
  const auto* const descriptor = message.GetDescriptor();
  const auto* const reflection = message.GetReflection();
  Json out = Json::object();
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const FieldDescriptor* field = descriptor->field(i);
    Json& value = out[field->name()];
    if (field->is_repeated()) {  // in admin.proto only messages and strings are repeated
      value = Json::array();
      for (int j = 0; j < reflection->FieldSize(message, field); ++j) {
        value.push_back(field->cpp_type() == FieldDescriptor::CPPTYPE_STRING
                            ? Json(reflection->GetRepeatedString(message, field, j))
                            : ToJson(reflection->GetRepeatedMessage(message, field, j)));
      }
      continue;
    }
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32:
        value = reflection->GetInt32(message, field);
        break;
      case FieldDescriptor::CPPTYPE_INT64:
        value = reflection->GetInt64(message, field);
        break;
      case FieldDescriptor::CPPTYPE_UINT32:
        value = reflection->GetUInt32(message, field);
        break;
      case FieldDescriptor::CPPTYPE_UINT64:
        value = reflection->GetUInt64(message, field);
        break;
      case FieldDescriptor::CPPTYPE_BOOL:
        value = reflection->GetBool(message, field);
        break;
      case FieldDescriptor::CPPTYPE_STRING:
        value = reflection->GetString(message, field);
        break;
      case FieldDescriptor::CPPTYPE_MESSAGE:
        value = ToJson(reflection->GetMessage(message, field));
        break;
      default:
        break;  // admin.proto uses no other type
    }
  }
  return out;
}

std::string JsonText(const Json& value) {
  return value.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string JsonLine(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string YamlText(const Json& value) {
  if (!IsBlock(value)) return Scalar(value) + "\n";
  std::string out;
  AppendBlock(value, 0, out);
  return out;
}

}  // namespace fairway
