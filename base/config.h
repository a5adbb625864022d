// SPDX-License-Identifier: Apache-2.0
// The settings of one program: flags, then environment, then a settings file, then defaults.
//
//   int port = 29000;
//   Config config("fairway-controller", "Drives the islands.");
//   config.Flag("port", &port, "where clients connect");
//   if (auto code = config.Parse(argc, argv)) return *code;
//
// --port=1 overrides FAIRWAY_PORT=1, which overrides port = 1 in the file that --config names
// (File), which overrides the value that the variable had. --help, --version and --print-config
// (each value and where it came from) are built in.
#ifndef FAIRWAY_BASE_CONFIG_H_
#define FAIRWAY_BASE_CONFIG_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace fairway {

// Exit code of a program that got flags it does not understand.
inline constexpr int kExitUsage = 2;

// "500ms", "10s", "2m", "1.5" (seconds). INVALID_ARGUMENT: anything else, negative, or over a year.
absl::StatusOr<std::chrono::milliseconds> ParseDuration(std::string_view text);
// "10s", "1500ms": text that ParseDuration reads.
std::string FormatDuration(std::chrono::milliseconds duration);
// "65536", "64KiB", "64MiB", "2GiB" (and K, M, G for the same). INVALID_ARGUMENT: anything else, or
// negative.
absl::StatusOr<int64_t> ParseBytes(std::string_view text);

// Not thread-safe; used once, at the start of main.
class Config {
 public:
  enum class Source : uint8_t { kDefault, kFile, kEnvironment, kFlag };

  // `program` as the user typed it, for example "fairway up": it begins every message.
  Config(std::string program, std::string description);
  ~Config();
  Config(const Config&) = delete;
  Config& operator=(const Config&) = delete;

  // Declares --name. The default is the present value of *value, which must outlive Parse. `name`
  // is lower case with dashes; the environment variable is FAIRWAY_NAME with underscores.
  void Flag(std::string_view name, std::string* value, std::string_view help);
  void Flag(std::string_view name, int* value, std::string_view help);
  void Flag(std::string_view name, int64_t* value, std::string_view help);
  void Flag(std::string_view name, double* value, std::string_view help);
  // --name, --name=true, --name=false.
  void Flag(std::string_view name, bool* value, std::string_view help);
  // Units as in ParseDuration.
  void Flag(std::string_view name, std::chrono::milliseconds* value, std::string_view help);
  // The flag may be given several times; the environment variable holds a comma-separated list.
  void Flag(std::string_view name, std::vector<std::string>* value, std::string_view help);
  // Units as in ParseBytes.
  void BytesFlag(std::string_view name, int64_t* value, std::string_view help);
  // Adds a short form, for example "o" for -o. The flag must be declared.
  void ShortName(std::string_view name, char letter);
  // Replaces the environment variable FAIRWAY_NAME by another one. The flag must be declared.
  void Variable(std::string_view name, std::string_view variable);
  // Declares --config, the path of a settings file (base/settings_file.h), of which this program
  // reads [table]. All other flags must be declared before Parse, as always.
  void File(std::string_view table);
  // What Parse calls when all settings are read; its error is printed like that of a wrong value.
  void Check(std::function<absl::Status()> check);
  // Declares an optional word without a dash; words come in the order of declaration.
  void Positional(std::string_view name, std::string* value, std::string_view help);
  // All words that are left.
  void Positional(std::string_view name, std::vector<std::string>* value, std::string_view help);

  // Reads all settings. nullopt: go on. A number: exit with it. The text is printed then: 0 after
  // --help, --version and --print-config; kExitUsage after an error, which takes one line.
  std::optional<int> Parse(int argc, const char* const* argv);

  // The same, without the process's environment and streams.
  struct Outcome {
    std::optional<int> exit_code;
    std::string output;  // for standard output
    std::string error;   // for standard error
  };
  using Environment = std::function<std::optional<std::string>(const std::string& name)>;
  Outcome Parse(const std::vector<std::string>& args, const Environment& environment);

  // The environment of this process.
  static std::optional<std::string> ProcessEnvironment(const std::string& name);

  // Within and after Check: the program will only say what its settings are.
  bool only_prints() const;
  // After Parse. `name` must be declared.
  Source source(std::string_view name) const;
  // After Parse: each flag and its value as text, to compare two readings of the settings.
  std::map<std::string, std::string> Values() const;

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

// Says in the log what a program that has read its settings again makes of them. `present` and
// `fresh`: Config::Values. `reloadable`: names of the settings that the caller applies if this
// returns true; their values in `present` are brought up to date. The others are named, and stay.
// False: `outcome` has an error, and nothing is to be applied.
bool TakeReload(const Config::Outcome& outcome, std::map<std::string, std::string>& present,
                const std::map<std::string, std::string>& fresh,
                const std::set<std::string>& reloadable);

}  // namespace fairway

#endif  // FAIRWAY_BASE_CONFIG_H_
