// SPDX-License-Identifier: Apache-2.0
#include "client/cli/software_checks.h"

#include <elf.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>
#include <vector>

#include <absl/strings/str_split.h>
#include <fmt/format.h>

#include "client/cli/child_output.h"
#include "client/cli/json_text.h"
#include "client/cli/process.h"

namespace fairway {
namespace {

constexpr std::chrono::seconds kVersionLimit{5};
constexpr std::chrono::seconds kPythonLimit{15};

// Prints what importlib knows, and imports nothing of the packages: that would take seconds.
constexpr char kAskPython[] = R"py(import sys
sys.path[:1] = []
import importlib.metadata, importlib.util, json, pathlib, re
def version(name):
    try: return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError: return ""
def numbers(text): return [int(n) for n in re.match(r"[0-9.]*", text)[0].split(".") if n]
out = {"python": sys.executable, **{n: version(n) for n in ("fairway", "jax", "jaxlib")}}
spec = importlib.util.find_spec("fairway")
for folder in spec.submodule_search_locations or () if spec else ():
    file = pathlib.Path(folder) / "jax_versions.py"
    found = re.search('OLDEST, NEWEST = "(.*?)", "(.*?)"', file.read_text()) if file.is_file() else None
    if found and out["jaxlib"]:
        out["oldest"], out["newest"] = found.groups()
        out["old"] = numbers(out["jaxlib"]) < numbers(out["oldest"])
        out["new"] = numbers(out["jaxlib"]) > numbers(out["newest"])
print(json.dumps(out)))py";

// What the name of a program stands for, by PATH.
std::string InPath(const std::string& name) {
  if (name.find('/') != std::string::npos) return name;
  const char* const path = std::getenv("PATH");
  const std::vector<std::string> folders =
      absl::StrSplit(path != nullptr ? path : "/usr/bin:/bin", ':');
  for (const std::string& folder : folders) {
    const std::string file = (folder.empty() ? "." : folder) + "/" + name;
    if (::access(file.c_str(), X_OK) == 0) return file;
  }
  return "";
}

std::string LastLine(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text.substr(text.rfind('\n') + 1);
}

// Of log lines as daemons write them: the first error's message; else the last line.
std::string Cause(const std::string& output) {
  std::istringstream in(output);
  for (std::string line; std::getline(in, line);) {
    const Json record = Json::parse(line, nullptr, false);
    if (!record.is_object()) continue;
    const auto level = record.find("level"), text = record.find("msg");
    if (level != record.end() && *level == "error" && text != record.end() && text->is_string())
      return text->get<std::string>();
  }
  return LastLine(output);
}

std::string TextIn(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

bool IsTrue(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_boolean() && found->get<bool>();
}

void CompareJaxlib(const Json& told, const Report& report) {
  const std::string jaxlib = TextIn(told, "jaxlib"), oldest = TextIn(told, "oldest"),
                    newest = TextIn(told, "newest"), python = TextIn(told, "python");
  if (jaxlib.empty() || oldest.empty()) {
    return report(Skip("jaxlib", jaxlib.empty()
                                     ? fmt::format("{} has none", python)
                                     : "the package fairway does not say which it takes"));
  }
  const std::string text = fmt::format("{} (jax {})", jaxlib, TextIn(told, "jax"));
  const std::string range = fmt::format("; tested are {} to {}", oldest, newest);
  const std::string fix =
      fmt::format("{} -m pip install 'jax>={}' 'jax<={}'", python, oldest, newest);
  if (IsTrue(told, "old")) return report(Fail("jaxlib", text + range, fix));
  if (IsTrue(told, "new")) return report(Warn("jaxlib", text + range, fix));
  report(Pass("jaxlib", text));
}

// The header's first bytes; nullopt: the file has fewer.
std::optional<Elf64_Ehdr> HeaderOf(const std::string& path) {
  Elf64_Ehdr header{};
  std::ifstream file(path, std::ios::binary);
  // Up to e_machine files of 32 and 64 bits are the same.
  file.read(reinterpret_cast<char*>(&header), offsetof(Elf64_Ehdr, e_version));
  if (!file) return std::nullopt;
  return header;
}

std::string_view MachineName(int machine) {
  switch (machine) {
    case EM_X86_64:
      return "x86-64";
    case EM_AARCH64:
      return "AArch64";
    case EM_386:
      return "x86 of 32 bits";
    default:
      return "another processor";
  }
}

// Whether the file is a library for this processor; else that is reported.
bool IsLibraryForHere(const std::string& path, const Report& report) {
  constexpr char kWhat[] = "plugin file";
  const std::string install =
      "python3 -m pip install --no-deps --target /opt/xla-cpu-pjrt xla-cpu-pjrt, and name its "
      "xla_cpu_pjrt.so";
  struct stat facts {};
  if (::stat(path.c_str(), &facts) != 0) {
    report(Fail(kWhat, fmt::format("{}: {}", path, std::strerror(errno)), install));
    return false;
  }
  const auto header = S_ISREG(facts.st_mode) ? HeaderOf(path) : std::nullopt;
  if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 || header->e_type != ET_DYN) {
    report(Fail(kWhat, fmt::format("{} is no shared library, or cannot be read", path), install));
    return false;
  }
  const auto own = HeaderOf("/proc/self/exe");
  if (own && own->e_machine != header->e_machine) {
    report(Fail(kWhat,
                fmt::format("{} is for {} (ELF machine {}), and this host is {} ({})", path,
                            MachineName(header->e_machine), header->e_machine,
                            MachineName(own->e_machine), own->e_machine),
                "name the library for this processor: " + install));
    return false;
  }
  report(Pass(kWhat, fmt::format("{} is a library for {}", path, MachineName(header->e_machine))));
  return true;
}

}  // namespace

void CheckDaemonVersions(const Report& report) {
  for (const char* const name : {"fairway-controller", "fairway-worker"}) {
    const std::string path = fmt::format("{}/{}", ProgramDirectory(), name);
    const std::string what = fmt::format("version of {}", name);
    if (::access(path.c_str(), X_OK) != 0) {
      report(Skip(what, fmt::format("{}: {}", path, std::strerror(errno))));
      continue;
    }
    const auto ran = RunForOutput({path, "--version"}, kVersionLimit, Variables::kNotOfFairway);
    const std::string version =
        ran.ok() && ran->Succeeded() ? ran->output.substr(0, ran->output.find('\n')) : "";
    if (version == fmt::format("{} {}", name, FAIRWAY_VERSION)) {
      report(Pass(what, FAIRWAY_VERSION));
    } else {
      report(Fail(
          what, fmt::format("{} says '{}', and this command is {}", path, version, FAIRWAY_VERSION),
          "install all programs from one package"));
    }
  }
}

void CheckPython(const std::string& python, const Report& report) {
  constexpr char kWhat[] = "Python package";
  const std::string path = InPath(python);
  if (python.empty() || path.empty()) {
    return report(
        Skip(kWhat, python.empty() ? "--python is empty" : fmt::format("no {} in PATH", python)));
  }
  const auto ran = RunForOutput({path, "-B", "-c", kAskPython}, kPythonLimit);
  const Json told =
      ran.ok() && ran->Succeeded() ? Json::parse(ran->output, nullptr, false) : Json();
  if (!told.is_object()) {
    return report(Skip(
        kWhat, fmt::format("{}: {}", path, ran.ok() ? LastLine(ran->output) : Text(ran.status()))));
  }
  const std::string version = TextIn(told, "fairway");
  if (version.empty()) {
    report(
        Skip(kWhat, fmt::format("{} has none (--python names another)", TextIn(told, "python"))));
  } else if (version != FAIRWAY_VERSION) {
    report(Fail(
        kWhat,
        fmt::format("{} has fairway {}, and this command is {}", TextIn(told, "python"), version,
                    FAIRWAY_VERSION),
        fmt::format("{} -m pip install fairway=={}", TextIn(told, "python"), FAIRWAY_VERSION)));
  } else {
    report(Pass(kWhat, fmt::format("fairway {} in {}", version, TextIn(told, "python"))));
  }
  CompareJaxlib(told, report);
}

std::optional<ChildUser> UserForPlugin(uid_t self, const std::vector<std::string>& of_daemons) {
  if (self != 0) return std::nullopt;
  for (const std::string& path : of_daemons) {
    struct stat facts {};
    if (::stat(path.c_str(), &facts) != 0 || facts.st_uid == 0) continue;
    if (auto found = FindUser(facts.st_uid)) return found;
    return ChildUser{.name = fmt::format("{}", facts.st_uid),
                     .user = facts.st_uid,
                     .group = facts.st_gid,
                     .groups = {facts.st_gid}};
  }
  return FindUser("fairway");
}

void CheckPlugin(const PluginPlace& plugin, std::chrono::milliseconds limit, const Report& report) {
  constexpr char kWhat[] = "plugin";
  if (plugin.path.empty()) return report(Skip(kWhat, "none is named (--plugin)"));
  if (!IsLibraryForHere(plugin.path, report)) return;
  std::vector<std::string> command = {ProgramDirectory() + "/fairway-worker",
                                      "--role=probe",
                                      "--runtime=pjrt",
                                      "--plugin=" + plugin.path,
                                      "--plugin-kind=" + plugin.kind,
                                      fmt::format("--devices={}", plugin.devices),
                                      "--log-level=error"};
  const std::vector<std::string> preload = absl::StrSplit(plugin.preload, ',', absl::SkipEmpty());
  for (const std::string& library : preload) command.push_back("--preload=" + library);
  const std::optional<ChildUser> user = UserForPlugin(::geteuid(), plugin.of_daemons);
  const auto ran = RunForOutput(command, limit, Variables::kNotOfFairway, size_t{1} << 20, user);
  if (!ran.ok()) return report(Skip(kWhat, Text(ran.status())));
  const std::string as = user               ? fmt::format("; opened as user {}", user->name)
                         : ::geteuid() == 0 ? "; opened as root, since no daemon's user is known"
                                            : "";
  constexpr char kFix[] =
      "use a plugin that fits this release (docs/install.md), and for GPUs a driver that fits it: "
      "nvidia-smi";
  if (ran->Succeeded()) {
    report(Pass(kWhat, LastLine(ran->output) + as));
  } else if (ran->late) {
    report(
        Fail(kWhat,
             fmt::format("{} has not started within {} s{}", plugin.path, limit.count() / 1000, as),
             kFix));
  } else if (WIFSIGNALED(ran->wait_status)) {
    report(Fail(kWhat,
                fmt::format("{}: the process that loads it ends by {}{}", plugin.path,
                            DescribeExit(ran->wait_status), as),
                kFix));
  } else {
    report(Fail(kWhat, Cause(ran->output) + as, kFix));
  }
}

}  // namespace fairway
