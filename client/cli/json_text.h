// SPDX-License-Identifier: Apache-2.0
// Messages of the controller for programs: as JSON and as YAML.
#ifndef FAIRWAY_CLIENT_CLI_JSON_TEXT_H_
#define FAIRWAY_CLIENT_CLI_JSON_TEXT_H_

#include <string>

#include <google/protobuf/message.h>
#include <nlohmann/json.hpp>

namespace fairway {

using Json = nlohmann::ordered_json;

// An object with all fields of the message, under their names; 64-bit numbers are numbers.
Json ToJson(const google::protobuf::Message& message);

// All end with a newline. Bytes of strings that are no UTF-8 become U+FFFD.
std::string JsonText(const Json& value);
std::string JsonLine(const Json& value);  // on one line
// The same value in YAML 1.2, in blocks; readers of YAML 1.1 see the same. A string has quotes
// where it could be read as something else.
std::string YamlText(const Json& value);

}  // namespace fairway

#endif  // FAIRWAY_CLIENT_CLI_JSON_TEXT_H_
