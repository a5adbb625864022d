// SPDX-License-Identifier: Apache-2.0
#include "base/config.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <utility>

#include <fmt/ranges.h>
#include <spdlog/spdlog.h>
#include <CLI/CLI.hpp>

#include "base/nearest.h"
#include "base/settings_file.h"

namespace fairway {
namespace {

// Represents the empty value of "--name=", for which CLI11 would take the next word.
constexpr std::string_view kEmptyValue("\x01", 1);

std::string VariableName(std::string_view flag) {
  std::string out = "FAIRWAY_";
  for (const char c : flag) {
    out += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return out;
}

// Returns the number at the front of `text`, and the text after it.
std::optional<std::pair<double, std::string_view>> SplitNumber(std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || !std::isfinite(number) || number < 0) return std::nullopt;
  return std::pair(number, text.substr(static_cast<size_t>(end - text.data())));
}

template <typename Int>
absl::Status ParseInteger(const std::string& text, Int* value) {
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, *value);
  if (error == std::errc::result_out_of_range) return InvalidArgument("'{}' is too large", text);
  if (error != std::errc() || stop != end)
    return InvalidArgument("'{}' is not a whole number", text);
  return absl::OkStatus();
}

absl::Status ParseBool(const std::string& text, bool* value) {
  if (text == "true" || text == "1" || text == "yes" || text == "on") {
    *value = true;
  } else if (text == "false" || text == "0" || text == "no" || text == "off") {
    *value = false;
  } else {
    return InvalidArgument("'{}' is neither true nor false", text);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::chrono::milliseconds> ParseDuration(std::string_view text) {
  const auto split = SplitNumber(text);
  if (split) {
    const auto [number, unit] = *split;
    double scale = 0;
    if (unit.empty() || unit == "s") scale = 1000;
    if (unit == "ms") scale = 1;
    if (unit == "m") scale = 60 * 1000;
    if (unit == "h") scale = 60 * 60 * 1000;
    if (scale > 0 && number * scale < 366.0 * 24 * 60 * 60 * 1000) {
      return std::chrono::milliseconds(std::llround(number * scale));
    }
  }
  return InvalidArgument("'{}' is not a duration such as 500ms, 10s or 2m", text);
}

std::string FormatDuration(std::chrono::milliseconds duration) {
  const auto count = duration.count();
  return count % 1000 == 0 ? fmt::format("{}s", count / 1000) : fmt::format("{}ms", count);
}

absl::StatusOr<int64_t> ParseBytes(std::string_view text) {
  const auto split = SplitNumber(text);
  if (split) {
    const auto [number, unit] = *split;
    double scale = 0;
    if (unit.empty() || unit == "B") scale = 1;
    if (unit == "K" || unit == "KiB") scale = 1024.0;
    if (unit == "M" || unit == "MiB") scale = 1024.0 * 1024;
    if (unit == "G" || unit == "GiB") scale = 1024.0 * 1024 * 1024;
    if (unit == "T" || unit == "TiB") scale = 1024.0 * 1024 * 1024 * 1024;
    if (scale > 0 && number * scale < 4e18)
      return static_cast<int64_t>(std::llround(number * scale));
  }
  return InvalidArgument("'{}' is not a size such as 65536, 64MiB or 2GiB", text);
}

struct Config::State {
  struct Entry {
    std::string name;
    std::string variable;
    std::function<absl::Status(const std::string&)> read;  // one value
    std::function<std::string()> show;
    std::function<void()> clear;  // before the first value of a list
    bool positional = false;
    bool list = false;
    CLI::Option* option = nullptr;
    CLI::Option* short_option = nullptr;
    Source source = Source::kDefault;
    std::string where;  // kFile: FILE:LINE
  };

  State(std::string program_name, std::string description)
      : program(std::move(program_name)), app(std::move(description), program) {
    app.allow_extras();
    app.set_help_flag("");
    app.add_flag("--help,-h", help, "Print this text and end");
    app.add_flag("--version", version, "Print the version and end");
    app.add_flag("--print-config", print, "Print each setting and where it came from, and end");
    app.get_formatter()->column_width(34);
    app.footer("Each flag can also be set in the environment: --some-flag as FAIRWAY_SOME_FLAG.");
  }

  Entry& Find(std::string_view name) {
    for (const auto& entry : entries) {
      if (entry->name == name) return *entry;
    }
    std::abort();  // a bug of the program
  }

  Entry& Add(std::string_view name, std::string_view help_text, std::string_view type,
             std::function<absl::Status(const std::string&)> read,
             std::function<std::string()> show) {
    auto entry = std::make_unique<Entry>();
    entry->name = std::string(name);
    entry->variable = VariableName(name);
    entry->read = std::move(read);
    entry->show = std::move(show);
    const std::string flag = "--" + entry->name;
    if (type.empty()) {
      const std::string text(help_text);
      entry->option = app.add_flag(flag, text);
    } else {
      const auto accept = [](const CLI::results_t&) { return true; };
      entry->option = app.add_option(flag, accept, std::string(help_text));
      entry->option->type_name(std::string(type))->expected(1)->default_str(entry->show());
    }
    entry->option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    entries.push_back(std::move(entry));
    return *entries.back();
  }

  Entry& AddList(std::string_view name, std::string_view help_text,
                 std::vector<std::string>* value) {
    return Add(
        name, help_text, "TEXT ...",
        [value](const std::string& text) {
          value->push_back(text);
          return absl::OkStatus();
        },
        [value] { return fmt::format("{}", fmt::join(*value, ",")); });
  }

  void MakePositional(Entry& entry, std::string_view help_text) {
    entry.positional = true;
    app.remove_option(entry.option);
    entry.option = app.add_option(
        entry.name, [](const CLI::results_t&) { return true; }, std::string(help_text));
  }

  // Returns one line about an undeclared flag.
  std::string UnknownFlag(const std::string& argument) const {
    const std::string flag = argument.substr(0, argument.find('='));
    const std::string bare = flag.substr(std::min(flag.find_first_not_of('-'), flag.size()));
    std::vector<std::string> known = {"help", "version", "print-config"};
    for (const auto& entry : entries) {
      if (!entry->positional) known.push_back(entry->name);
    }
    const std::string nearest = Nearest(bare, known);
    const std::string hint =
        nearest.empty() ? std::string() : fmt::format("; did you mean --{}?", nearest);
    return fmt::format("{}: unknown flag {}{} (--help lists all flags)\n", program, flag, hint);
  }

  absl::Status Take(Entry& entry, const std::vector<std::string>& values, Source source) {
    if (entry.clear) entry.clear();
    for (const std::string& value : values) {
      FAIRWAY_RETURN_IF_ERROR(entry.read(value == kEmptyValue ? std::string() : value));
    }
    entry.source = source;
    return absl::OkStatus();
  }

  // Reads the settings that the file has for this program.
  absl::Status TakeFile(const Environment& environment) {
    if (table.empty()) return absl::OkStatus();
    const CLI::Option* const flag = Find("config").option;
    std::string path;
    if (flag->count() > 0) {
      path = flag->reduced_results().front();
      if (path == kEmptyValue) path.clear();
    } else {
      path = environment(Find("config").variable).value_or("");
    }
    if (path.empty()) return absl::OkStatus();
    FAIRWAY_ASSIGN_OR_RETURN(const SettingsTables tables, ReadSettings(path));
    const auto found = tables.find(table);
    if (found == tables.end()) return absl::OkStatus();
    for (const FileSetting& setting : found->second) {
      const std::string where = fmt::format("{}:{}", path, setting.line);
      FAIRWAY_RETURN_IF_ERROR(Annotate(TakeSetting(setting, where), where));
    }
    return absl::OkStatus();
  }

  absl::Status TakeSetting(const FileSetting& setting, const std::string& where) {
    for (const auto& entry : entries) {
      if (entry->positional || entry->name != setting.name || setting.name == "config") continue;
      if (setting.array && !entry->list)
        return InvalidArgument("{} takes one value, no array", setting.name);
      entry->where = where;
      return Annotate(Take(*entry, setting.values, Source::kFile), setting.name);
    }
    std::vector<std::string> known;
    for (const auto& entry : entries) {
      if (!entry->positional && entry->name != "config") known.push_back(entry->name);
    }
    const std::string nearest = Nearest(setting.name, known);
    return InvalidArgument("unknown setting '{}' in [{}]{}", setting.name, table,
                           nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest));
  }

  absl::Status TakeAll(const Environment& environment) {
    FAIRWAY_RETURN_IF_ERROR(TakeFile(environment));
    for (const auto& entry : entries) {
      for (const CLI::Option* option : {entry->short_option, entry->option}) {
        if (option == nullptr || option->count() == 0) continue;
        const std::string what = entry->positional ? entry->name : "--" + entry->name;
        FAIRWAY_RETURN_IF_ERROR(
            Annotate(Take(*entry, option->reduced_results(), Source::kFlag), what));
      }
      if (entry->source == Source::kFlag) continue;
      if (entry->positional) continue;
      const std::optional<std::string> text = environment(entry->variable);
      if (!text) continue;
      const auto values =
          entry->list ? CLI::detail::split(*text, ',') : std::vector<std::string>{*text};
      FAIRWAY_RETURN_IF_ERROR(
          Annotate(Take(*entry, values, Source::kEnvironment), entry->variable));
    }
    return absl::OkStatus();
  }

  std::string PrintedConfig() const {
    std::string out;
    for (const auto& entry : entries) {
      if (entry->positional) continue;
      std::string from = "default";
      if (entry->source == Source::kFlag) from = "flag";
      if (entry->source == Source::kEnvironment) from = "environment " + entry->variable;
      if (entry->source == Source::kFile) from = "file " + entry->where;
      out += fmt::format("--{}={}  ({})\n", entry->name, entry->show(), from);
    }
    return out;
  }

  const std::string program;
  CLI::App app;
  bool help = false;
  bool version = false;
  bool print = false;
  std::string table;  // of the settings file; empty: the program reads none
  std::string file;   // --config
  std::function<absl::Status()> check;
  std::vector<std::unique_ptr<Entry>> entries;
};

Config::Config(std::string program, std::string description)
    : state_(std::make_unique<State>(std::move(program), std::move(description))) {}
Config::~Config() = default;

void Config::Flag(std::string_view name, std::string* value, std::string_view help) {
  state_->Add(
      name, help, "TEXT",
      [value](const std::string& text) {
        *value = text;
        return absl::OkStatus();
      },
      [value] { return *value; });
}

void Config::Flag(std::string_view name, int* value, std::string_view help) {
  state_->Add(
      name, help, "N", [value](const std::string& text) { return ParseInteger(text, value); },
      [value] { return std::to_string(*value); });
}

void Config::Flag(std::string_view name, int64_t* value, std::string_view help) {
  state_->Add(
      name, help, "N", [value](const std::string& text) { return ParseInteger(text, value); },
      [value] { return std::to_string(*value); });
}

void Config::Flag(std::string_view name, double* value, std::string_view help) {
  state_->Add(
      name, help, "X",
      [value](const std::string& text) {
        const char* const end = text.data() + text.size();
        const auto [stop, error] = std::from_chars(text.data(), end, *value);
        if (error != std::errc() || stop != end)
          return InvalidArgument("'{}' is not a number", text);
        return absl::OkStatus();
      },
      [value] { return fmt::format("{}", *value); });
}

void Config::Flag(std::string_view name, bool* value, std::string_view help) {
  // The type is "", so a bare --name does not take the next word as its value.
  state_->Add(
      name, help, "", [value](const std::string& text) { return ParseBool(text, value); },
      [value] { return *value ? std::string("true") : std::string("false"); });
}

void Config::Flag(std::string_view name, std::chrono::milliseconds* value, std::string_view help) {
  state_->Add(
      name, help, "TIME",
      [value](const std::string& text) {
        FAIRWAY_ASSIGN_OR_RETURN(*value, ParseDuration(text));
        return absl::OkStatus();
      },
      [value] { return FormatDuration(*value); });
}

void Config::Flag(std::string_view name, std::vector<std::string>* value, std::string_view help) {
  auto& entry = state_->AddList(name, help, value);
  entry.clear = [value] { value->clear(); };
  entry.list = true;
  entry.option->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

void Config::BytesFlag(std::string_view name, int64_t* value, std::string_view help) {
  state_->Add(
      name, help, "BYTES",
      [value](const std::string& text) {
        FAIRWAY_ASSIGN_OR_RETURN(*value, ParseBytes(text));
        return absl::OkStatus();
      },
      [value] { return std::to_string(*value); });
}

void Config::ShortName(std::string_view name, char letter) {
  // CLI11 cannot add a name later; the long and the short flag share one reader.
  auto& entry = state_->Find(name);
  const auto accept = [](const CLI::results_t&) { return true; };
  entry.short_option = state_->app.add_option(std::string("-") + letter, accept,
                                              fmt::format("The same as --{}", name));
  entry.short_option->type_name("TEXT")->expected(1);
}

void Config::Variable(std::string_view name, std::string_view variable) {
  auto& entry = state_->Find(name);
  entry.variable = std::string(variable);
  entry.option->description(
      fmt::format("{} (environment: {})", entry.option->get_description(), variable));
}

void Config::File(std::string_view table) {
  state_->table = std::string(table);
  Flag("config", &state_->file, fmt::format("Settings file; this program reads its [{}]", table));
}

void Config::Check(std::function<absl::Status()> check) { state_->check = std::move(check); }

void Config::Positional(std::string_view name, std::string* value, std::string_view help) {
  auto& entry = state_->Add(
      name, help, "TEXT",
      [value](const std::string& text) {
        *value = text;
        return absl::OkStatus();
      },
      [value] { return *value; });
  state_->MakePositional(entry, help);
}

void Config::Positional(std::string_view name, std::vector<std::string>* value,
                        std::string_view help) {
  auto& entry = state_->AddList(name, help, value);
  state_->MakePositional(entry, help);
  entry.option->expected(-1)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

Config::Outcome Config::Parse(const std::vector<std::string>& args,
                              const Environment& environment) {
  State& state = *state_;
  const auto usage = [](std::string line) {
    return Outcome{.exit_code = kExitUsage, .output = {}, .error = std::move(line)};
  };
  try {
    std::vector<std::string> reversed(args.rbegin(), args.rend());
    for (std::string& arg : reversed) {
      if (arg.starts_with("--") && arg.find('=') == arg.size() - 1) arg += kEmptyValue;
    }
    state.app.parse(std::move(reversed));
  } catch (const CLI::ParseError& error) {
    return usage(fmt::format("{}: {}\n", state.program, error.what()));
  }
  if (state.help) return {.exit_code = 0, .output = state.app.help() + "\n", .error = {}};
  if (state.version) {
    return {.exit_code = 0,
            .output = fmt::format("{} {}\n", state.program, FAIRWAY_VERSION),
            .error = {}};
  }
  for (const std::string& extra : state.app.remaining()) {
    if (extra.size() > 1 && extra[0] == '-') return usage(state.UnknownFlag(extra));
  }
  for (const std::string& extra : state.app.remaining()) {
    return usage(fmt::format("{}: unexpected argument '{}'\n", state.program, extra));
  }
  absl::Status status = state.TakeAll(environment);
  if (status.ok() && state.check) status = state.check();
  if (!status.ok()) {
    return usage(fmt::format("{}: {}\n", state.program, Text(status)));
  }
  if (state.print) return {.exit_code = 0, .output = state.PrintedConfig(), .error = {}};
  return {};
}

std::optional<std::string> Config::ProcessEnvironment(const std::string& name) {
  const char* text = std::getenv(name.c_str());
  if (text == nullptr) return std::nullopt;
  return text;
}

std::optional<int> Config::Parse(int argc, const char* const* argv) {
  const Outcome outcome =
      Parse(std::vector<std::string>(argv + 1, argv + argc), ProcessEnvironment);
  std::fputs(outcome.output.c_str(), stdout);
  std::fputs(outcome.error.c_str(), stderr);
  std::fflush(stdout);
  return outcome.exit_code;
}

bool Config::only_prints() const { return state_->print; }

Config::Source Config::source(std::string_view name) const { return state_->Find(name).source; }

std::map<std::string, std::string> Config::Values() const {
  std::map<std::string, std::string> out;
  for (const auto& entry : state_->entries) {
    if (!entry->positional) out[entry->name] = entry->show();
  }
  return out;
}

bool TakeReload(const Config::Outcome& outcome, std::map<std::string, std::string>& present,
                const std::map<std::string, std::string>& fresh,
                const std::set<std::string>& reloadable) {
  if (outcome.exit_code) {
    const std::string_view why = outcome.error;
    spdlog::error("the settings stay as they are: {}", why.substr(0, why.find('\n')));
    return false;
  }
  std::vector<std::string> applied;
  std::vector<std::string> later;
  for (auto& [name, value] : present) {
    const std::string& next = fresh.at(name);
    if (value == next) continue;
    const bool now = reloadable.contains(name);
    (now ? applied : later).push_back(fmt::format("{} from '{}' to '{}'", name, value, next));
    if (now) value = next;
  }
  spdlog::info("settings read again; changed: {}",
               applied.empty() ? "none" : fmt::format("{}", fmt::join(applied, ", ")));
  if (!later.empty()) {
    spdlog::warn("these settings change only when the process is started anew: {}",
                 fmt::join(later, ", "));
  }
  return true;
}

}  // namespace fairway
