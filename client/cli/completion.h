// SPDX-License-Identifier: Apache-2.0
#ifndef FAIRWAY_CLIENT_CLI_COMPLETION_H_
#define FAIRWAY_CLIENT_CLI_COMPLETION_H_

namespace fairway {

// `fairway completion SHELL` prints a script by which bash or zsh completes fairway's commands,
// verbs and flags. The script asks `fairway ... --help` for them, so it fits whichever version
// runs. Returns the exit code.
int RunCompletion(int argc, const char* const* argv);

}  // namespace fairway

#endif  // FAIRWAY_CLIENT_CLI_COMPLETION_H_
