// SPDX-License-Identifier: Apache-2.0
// `fairway cordon`, `uncordon` and `drain`: operators keep new sessions from islands. argv[0] is
// the command; each function returns the exit code.
#ifndef FAIRWAY_CLIENT_CLI_CORDON_H_
#define FAIRWAY_CLIENT_CLI_CORDON_H_

namespace fairway {

int RunCordon(int argc, const char* const* argv);
int RunUncordon(int argc, const char* const* argv);
// Returns when the island is drained, or at --timeout. The cordon stays in any case.
int RunDrain(int argc, const char* const* argv);

}  // namespace fairway

#endif  // FAIRWAY_CLIENT_CLI_CORDON_H_
