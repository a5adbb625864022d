// SPDX-License-Identifier: Apache-2.0
#include "client/cli/completion.h"

#include <cstdio>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "base/config.h"

namespace fairway {
namespace {

// For both shells. Takes the word that is typed and those between `fairway` and it, and prints what
// it may become: a flag, or a command or verb, which help shows two columns in. Only the first two
// words are given to fairway, and only if they are in lower case, so never a flag or what a command
// works on.
constexpr std::string_view kWords = R"sh(_fairway_words() {
  local current=$1 word verbs=()
  shift
  for word in "$@"; do
    [[ ${#verbs[@]} -lt 2 && $word =~ ^[a-z]+$ ]] || break
    verbs+=("$word")
  done
  if [[ $current == -* ]]; then
    fairway "${verbs[@]}" --help 2>/dev/null | sed -nE 's/^ +(-[a-zA-Z],)?(--[a-z][a-z0-9-]*).*/\2/p'
  elif [[ $# -lt 2 ]]; then
    fairway "${verbs[@]}" --help 2>/dev/null | sed -nE 's/^  ([a-z]+) .*/\1/p'
  fi
}
)sh";

constexpr std::string_view kBash = R"sh(_fairway() {
  local current=${COMP_WORDS[COMP_CWORD]}
  local words=$(_fairway_words "$current" "${COMP_WORDS[@]:1:COMP_CWORD-1}")
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}
complete -o default -F _fairway fairway
)sh";

constexpr std::string_view kZsh = R"sh(_fairway() {
  local found=(${(f)"$(_fairway_words "$PREFIX" "${(@)words[2,CURRENT-1]}")"})
  compadd -a found || _files
}
compdef _fairway fairway
)sh";

}  // namespace

int RunCompletion(int argc, const char* const* argv) {
  std::string shell;
  Config config("fairway completion",
                "Prints a script that completes fairway's commands and flags.\n\n"
                "  bash    in ~/.bashrc: source <(fairway completion bash)\n"
                "  zsh     in ~/.zshrc, behind compinit: source <(fairway completion zsh)\n");
  config.Positional("SHELL", &shell, "bash or zsh");
  if (const auto code = config.Parse(argc, argv)) return *code;
  if (shell != "bash" && shell != "zsh") {
    fmt::print(stderr, "fairway completion: expected `fairway completion bash` or `... zsh`{}\n",
               shell.empty() ? "" : fmt::format(", and not '{}'", shell));
    return kExitUsage;
  }
  fmt::print(
      "# {} completes fairway's commands, verbs and flags: source <(fairway completion {})\n"
      "{}{}",
      shell, shell, kWords, shell == "bash" ? kBash : kZsh);
  return 0;
}

}  // namespace fairway
